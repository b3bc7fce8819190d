//go:build peers

package broker

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// refused runs `strandline serve`, which must end with exit code 1 and say all of want in one line on standard error,
// and nothing on standard output.
func refused(t *testing.T, flags []string, want ...string) {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.CommandContext(within(t, patience), filepath.Join(binaries, "strandline"), append([]string{"serve"}, flags...)...)
	cmd.Dir = t.TempDir() // the default data folder lies below it
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	text := stderr.String()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("serve %q ended with %v, want exit code 1:\n%s", flags, err, text)
	}
	if len(stdout) > 0 {
		t.Errorf("serve %q printed %q", flags, stdout)
	}
	if strings.Count(text, "\n") != 1 {
		t.Errorf("serve %q says more than one line:\n%s", flags, text)
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("serve %q does not say %q:\n%s", flags, w, text)
		}
	}
	t.Logf("serve %s\n    %s", strings.Join(flags, " "), text)
}

func TestWrongFlags(t *testing.T) {
	free := []string{"--listen", "127.0.0.1:0"}
	f := func(flags []string, want ...string) {
		t.Helper()
		refused(t, append(free[:2:2], flags...), want...)
	}
	f([]string{"--durability", "nonsense"}, "nonsense", "fsync", "write")
	f([]string{"--durability", ""}, "--durability", "fsync", "write")
	f([]string{"--listen", "127.0.0.1"}, "127.0.0.1", "host:port")
	f([]string{"--listen", "127.0.0.1:kafka"}, "kafka", "65535")
	f([]string{"--listen", "127.0.0.1:70000"}, "70000", "65535")
	f([]string{"--listen", "no-such-host.invalid:1"}, "cannot listen on no-such-host.invalid:1")
	f([]string{"--listen", "192.0.2.1:9092"}, "cannot listen on 192.0.2.1:9092")
	f([]string{"--advertise", "example.org"}, "example.org", "host:port")
	f([]string{"--advertise", ":9092"}, ":9092", "host and a port")
	f([]string{"--partitions", "-1"}, "--partitions is -1")
	f([]string{"--partitions", "0"}, "--partitions is 0")
	f([]string{"--partitions", "10001"}, "10001", "1 to 10000")
	f([]string{"--partitions", "many"}, "many", "--partitions")
	f([]string{"--node-id", "-4"}, "--node-id is -4")
	f([]string{"--node-id", "0"}, "--node-id is 0")
	f([]string{"--data-dir", ""}, "--data-dir")
	f([]string{"--no-such-flag"}, "--no-such-flag")
	f([]string{"an-argument"}, "an-argument")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f([]string{"--data-dir", file}, file, "not a directory")
	f([]string{"--data-dir", "/proc/nothing/broker"}, "/proc/nothing/broker")
}

func TestAddressInUse(t *testing.T) {
	s := start(t)
	refused(t, []string{"--listen", s.Addr}, s.Addr, "address already in use")
}

// TestSecondProcess: the folder belongs to the first, which goes on.
func TestSecondProcess(t *testing.T) {
	s := start(t)
	ctx := within(t, patience)
	c := client(t, s.Addr)
	for round := range 2 {
		if err := c.ProduceSync(ctx, recordOf("t", 0, fmt.Sprint(round))).FirstErr(); err != nil {
			t.Fatal(err)
		}
		refused(t, []string{"--listen", "127.0.0.1:0", "--data-dir", s.dir}, s.dir, "in use by another broker", "another folder")
		// Also under another name of the same folder.
		alias := filepath.Join(t.TempDir(), "alias")
		if err := os.Symlink(s.dir, alias); err != nil {
			t.Fatal(err)
		}
		refused(t, []string{"--listen", "127.0.0.1:0", "--data-dir", alias}, alias, "in use by another broker")
	}
	if err := c.ProduceSync(ctx, recordOf("t", 0, "2")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got := len(readAll(t, ctx, s.Addr, kgo.ReadCommitted(), []string{"t"})); got != 3 {
		t.Errorf("%d records after two refused processes, want 3", got)
	}
	s.Kill()
	s.Again() // a killed process holds nothing
}

// TestSignals: Ctrl-C and SIGTERM end the broker cleanly, whatever its clients are doing.
func TestSignals(t *testing.T) {
	f := func(name string, end func(*server) error) {
		t.Helper()
		s := start(t)
		ctx := within(t, patience)
		c := client(t, s.Addr)
		if err := c.ProduceSync(ctx, recordOf("t", 0, "before")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		// A silent connection, half a request, a long poll at the end, and a client that does not read its answers.
		dial(t, s.Addr)
		dial(t, s.Addr).conn.Write([]byte{0, 0, 1, 0, 0, 3})
		poll := dial(t, s.Addr)
		poll.conn.Write(frame(fetchAtEnd("t", 1)))
		deaf := dial(t, s.Addr)
		for range 50 {
			deaf.conn.Write(frame(kmsg.NewPtrApiVersionsRequest()))
		}
		begin := time.Now()
		err := end(s)
		if took := time.Since(begin); err != nil || took > 5*time.Second {
			t.Errorf("%s: ended after %v with %v:\n%s", name, took, err, s.Stderr())
		} else {
			t.Logf("%s: ended after %v", name, took)
		}
		if out := s.Output(); strings.Count(out, "\n") != 1 {
			t.Errorf("standard output holds more than the ready line:\n%s", out)
		}
		if strings.Contains(s.Stderr(), "listening") {
			t.Errorf("standard error holds the ready line:\n%s", s.Stderr())
		}
		s.Again()
		if got := readAll(t, ctx, s.Addr, kgo.ReadCommitted(), []string{"t"}); len(got) != 1 {
			t.Errorf("%s: %d records after the restart, want 1", name, len(got))
		}
	}
	f("SIGINT", func(s *server) error { return s.Interrupt() })
	f("SIGTERM", func(s *server) error { return s.Terminate() })
}

// TestReadyLine: standard output gets one line that says where and how, logs go to standard error.
func TestReadyLine(t *testing.T) {
	s := start(t, "--durability", "write")
	for _, want := range []string{"listening on " + s.Addr, s.dir, "durability write"} {
		if !strings.Contains(s.Output(), want) {
			t.Errorf("the ready line lacks %q:\n%s", want, s.Output())
		}
	}
	stranger := dial(t, s.Addr)
	stranger.conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	eventually(t, within(t, patience), "a log line about HTTP", func() (bool, error) {
		return strings.Contains(s.Stderr(), "looks like HTTP"), nil
	})
	if out := s.Output(); strings.Count(out, "\n") != 1 {
		t.Errorf("standard output holds more than the ready line:\n%s", out)
	}
}

// TestFlagsReachClients: what the flags say is what clients see.
func TestFlagsReachClients(t *testing.T) {
	s := start(t, "--advertise", "broker.example:1234", "--partitions", "5", "--node-id", "42")
	ctx := within(t, patience)
	// The advertised address is not ours, so this client must not be sent there.
	c := dial(t, s.Addr)
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = 12, true
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr("made-by-metadata")
	req.Topics = append(req.Topics, topic)
	resp := c.ask(req).(*kmsg.MetadataResponse)
	if len(resp.Brokers) != 1 || resp.Brokers[0].Host != "broker.example" || resp.Brokers[0].Port != 1234 ||
		resp.Brokers[0].NodeID != 42 || resp.Brokers[0].Rack != nil || resp.ControllerID != 42 {
		t.Errorf("metadata names %+v, controller %d", resp.Brokers, resp.ControllerID)
	}
	if n := len(resp.Topics[0].Partitions); resp.Topics[0].ErrorCode != 0 || n != 5 {
		t.Errorf("the new topic has %d partitions, code %d", n, resp.Topics[0].ErrorCode)
	}
	coordinator := kmsg.NewPtrFindCoordinatorRequest()
	coordinator.Version, coordinator.CoordinatorKeys = 4, []string{"g"}
	found := c.ask(coordinator).(*kmsg.FindCoordinatorResponse).Coordinators[0]
	if found.Host != "broker.example" || found.Port != 1234 || found.NodeID != 42 {
		t.Errorf("the coordinator is %+v", found)
	}
	cluster := *resp.ClusterID
	s.restart()
	c = dial(t, s.Addr)
	if resp = c.ask(req).(*kmsg.MetadataResponse); *resp.ClusterID != cluster || len(resp.Topics[0].Partitions) != 5 {
		t.Errorf("after the restart: cluster %s, %d partitions", *resp.ClusterID, len(resp.Topics[0].Partitions))
	}

	plain := start(t)
	meta, err := kadm.NewClient(client(t, plain.Addr)).BrokerMetadata(ctx)
	if err != nil || meta.Controller != 1 || len(meta.Brokers) != 1 || meta.Brokers[0].NodeID != 1 ||
		fmt.Sprintf("%s:%d", meta.Brokers[0].Host, meta.Brokers[0].Port) != plain.Addr {
		t.Errorf("without flags: %+v, %v", meta, err)
	}
	if meta.Cluster == cluster {
		t.Error("two folders have one cluster id")
	}
}

// TestDurabilityWriteSurvivesKill: what was acknowledged after the write alone is there after kill -9.
func TestDurabilityWriteSurvivesKill(t *testing.T) {
	s := start(t, "--durability", "write")
	ctx := within(t, patience)
	c := client(t, s.Addr, kgo.ProducerLinger(0))
	n := 0
	for range 3 {
		for range 200 {
			if err := c.ProduceSync(ctx, recordOf("t", 0, fmt.Sprint(n))).FirstErr(); err != nil {
				t.Fatal(err)
			}
			n++
		}
		s.restart()
	}
	got := readAll(t, ctx, s.Addr, kgo.ReadUncommitted(), []string{"t"})
	for i := range n {
		if v := got[position{"t", 0, int64(i)}]; v != fmt.Sprint(i) {
			t.Fatalf("offset %d of %d holds %q", i, n, v)
		}
	}
	if len(got) != n {
		t.Errorf("%d records, want %d", len(got), n)
	}
}

// TestUnwritableFolder needs a user that permissions bind.
func TestUnwritableFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		refused(t, []string{"--listen", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "d")}, dir, "permission denied")
		return
	}
	var stderr strings.Builder
	cmd := exec.CommandContext(within(t, patience), filepath.Join(binaries, "strandline"), "serve", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "d"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Stderr = &stderr
	if err := os.Chmod(binaries, 0o755); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Run()
	if text := stderr.String(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(text, dir) || !strings.Contains(text, "permission denied") {
		t.Errorf("exit code %d:\n%s", cmd.ProcessState.ExitCode(), text)
	}
}

// fetchAtEnd is a Fetch that waits a minute for something behind offset.
func fetchAtEnd(topic string, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 4, 60_000, 1, 1<<20
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = offset, 1<<20
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}
