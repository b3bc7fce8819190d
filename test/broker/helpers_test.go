//go:build peers

package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/strandline-io/strandline/test/peers"
)

// patience bounds every wait of these tests; the machine may be loaded.
const patience = 30 * time.Second

// binaries is the folder of the programs under test.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(peers.BuildMain(m, []string{"./cmd/strandline", "./test/broker/tight"}, func(dir string) { binaries = dir }))
}

// server is a broker process that can be started again over its data.
type server struct {
	peers.Program
	dir string
}

// newServer is a server whose folder is new and whose log may hold no error.
func newServer(t testing.TB, command func(addr, dir string) []string) *server {
	t.Helper()
	s := unopened(t, command)
	s.Open()
	return s
}

// unopened is a new server that has not been started.
func unopened(t testing.TB, command func(addr, dir string) []string) *server {
	t.Helper()
	s := &server{dir: filepath.Join(t.TempDir(), "data")}
	s.T, s.Addr, s.Alarms = t, peers.FreeAddress(t), []string{"level=ERROR"}
	s.Command = func() []string { return command(s.Addr, s.dir) }
	return s
}

// start starts `strandline serve` with extra flags over a new folder.
func start(t testing.TB, flags ...string) *server {
	t.Helper()
	return newServer(t, func(addr, dir string) []string {
		return append([]string{filepath.Join(binaries, "strandline"), "serve", "--listen", addr, "--data-dir", dir}, flags...)
	})
}

// startTight starts the program of folder tight.
func startTight(t testing.TB, durability string) *server {
	t.Helper()
	return newServer(t, func(addr, dir string) []string {
		return []string{filepath.Join(binaries, "tight"), addr, dir, durability}
	})
}

// restart is kill -9 and a new start.
func (s *server) restart() {
	s.T.Helper()
	s.Kill()
	s.Again()
}

// dump ends a broker that hangs and logs what its goroutines do and what is in its folder.
func (s *server) dump() {
	s.T.Helper()
	_ = syscall.Kill(s.Pid(), syscall.SIGQUIT)
	_ = s.Wait()
	files, _ := exec.Command("ls", "-lR", s.dir).CombinedOutput()
	s.T.Logf("%s\n%s", files, s.Stderr())
}

// memory returns a value of /proc/PID/status in bytes, such as VmRSS or VmHWM, its peak.
func (s *server) memory(name string) int64 {
	s.T.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid()))
	if err != nil {
		s.T.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(status), name+":")
	if !ok {
		s.T.Fatalf("no %s in %s", name, status)
	}
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		s.T.Fatal(err)
	}
	return kib << 10
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// options are for clients that outlive the broker again and again.
func options(addr string, more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(addr), kgo.AllowAutoTopicCreation(),
		kgo.DialTimeout(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.RequestRetries(2000), kgo.RetryTimeout(patience),
		kgo.MetadataMinAge(20 * time.Millisecond), kgo.MetadataMaxAge(10 * time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, more...)
}

func client(t testing.TB, addr string, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(options(addr, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseAllowingRebalance)
	return c
}

func recordOf(topic string, partition int32, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
}

// oldTransactions keeps a client to transaction version 1: partitions are added by a request, epochs stay.
func oldTransactions() kgo.Opt { return kgo.MaxVersions(kversion.V3_9_0()) }

// createTopic makes a topic of n partitions.
func createTopic(t testing.TB, ctx context.Context, addr, name string, n int32) {
	t.Helper()
	made, err := kadm.NewClient(client(t, addr)).CreateTopic(ctx, n, 1, nil, name)
	if err = errors.Join(err, made.Err); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
}

// offsets are a partition's, as ListOffsets tells them.
type offsets struct{ start, stable, end int64 }

// listOffsets asks for the offsets of all partitions of topics.
func listOffsets(ctx context.Context, c *kgo.Client, topics ...string) (map[string]map[int32]offsets, error) {
	admin := kadm.NewClient(c)
	all := map[string]map[int32]offsets{}
	ask := func(list func(context.Context, ...string) (kadm.ListedOffsets, error), set func(*offsets, int64)) error {
		listed, err := list(ctx, topics...)
		if err = errors.Join(err, listed.Error()); err != nil {
			return err
		}
		listed.Each(func(l kadm.ListedOffset) {
			if all[l.Topic] == nil {
				all[l.Topic] = map[int32]offsets{}
			}
			o := all[l.Topic][l.Partition]
			set(&o, l.Offset)
			all[l.Topic][l.Partition] = o
		})
		return nil
	}
	// The last stable offset first: it is then never ahead of the high watermark.
	if err := ask(admin.ListStartOffsets, func(o *offsets, n int64) { o.start = n }); err != nil {
		return nil, err
	}
	if err := ask(admin.ListCommittedOffsets, func(o *offsets, n int64) { o.stable = n }); err != nil {
		return nil, err
	}
	if err := ask(admin.ListEndOffsets, func(o *offsets, n int64) { o.end = n }); err != nil {
		return nil, err
	}
	return all, nil
}

// position is an offset of a partition.
type position struct {
	topic     string
	partition int32
	offset    int64
}

// content is what a reader found: the values of the records, control records left out.
type content map[position]string

func (c content) add(t testing.TB, r *kgo.Record) {
	at := position{r.Topic, r.Partition, r.Offset}
	value := string(r.Value)
	if old, seen := c[at]; seen && old != value {
		t.Errorf("%v holds %q and %q", at, old, value)
	}
	c[at] = value
}

// readAll reads whole topics up to what ListOffsets says is their end at this isolation level.
func readAll(t testing.TB, ctx context.Context, addr string, isolation kgo.IsolationLevel, topics []string, more ...kgo.Opt) content {
	t.Helper()
	probe := client(t, addr)
	defer probe.Close()
	listed, err := listOffsets(ctx, probe, topics...)
	if err != nil {
		t.Fatal(err)
	}
	from := map[string]map[int32]kgo.Offset{}
	left := map[position]int64{}
	for topic, partitions := range listed {
		from[topic] = map[int32]kgo.Offset{}
		for p, o := range partitions {
			end := o.end
			if isolation == kgo.ReadCommitted() {
				end = o.stable
			}
			if end > o.start {
				from[topic][p] = kgo.NewOffset().At(o.start)
				left[position{topic: topic, partition: p}] = end
			}
		}
	}
	found := content{}
	c := client(t, addr, append([]kgo.Opt{
		kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords(), kgo.FetchMaxWait(100 * time.Millisecond),
	}, more...)...)
	defer c.Close()
	for len(left) > 0 {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("reading %v, %d partitions left: %v", topics, len(left), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				found.add(t, r)
			}
			part := position{topic: r.Topic, partition: r.Partition}
			if end, ok := left[part]; ok && r.Offset+1 >= end {
				delete(left, part)
			}
		})
	}
	return found
}

// values returns how often each value of a topic was found.
func (c content) values(topic string) map[string]int {
	n := map[string]int{}
	for at, v := range c {
		if at.topic == topic {
			n[v]++
		}
	}
	return n
}

// eventually asks until f says yes.
func eventually(t testing.TB, ctx context.Context, what string, f func() (bool, error)) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := f()
		if ok {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s did not happen: %v", what, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done(): // a last look
		}
	}
}

// allStable waits until no transaction is open in topics.
func allStable(t testing.TB, ctx context.Context, addr string, topics ...string) {
	t.Helper()
	c := client(t, addr)
	defer c.Close()
	eventually(t, ctx, "LSO = high watermark", func() (bool, error) {
		listed, err := listOffsets(ctx, c, topics...)
		if err != nil {
			return false, err
		}
		for topic, partitions := range listed {
			for p, o := range partitions {
				if o.stable != o.end {
					return false, fmt.Errorf("%s/%d has LSO %d and high watermark %d", topic, p, o.stable, o.end)
				}
			}
		}
		return true, nil
	})
}

// raw is a connection that speaks bytes.
type raw struct {
	t    testing.TB
	conn net.Conn
}

func dial(t testing.TB, addr string) *raw {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { conn.Close() })
	return &raw{t: t, conn: conn}
}

// frame is a request as it goes over the wire.
func frame(req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw")).AppendRequest(nil, req, 7)
}

// ask sends a request and returns its answer.
func (r *raw) ask(req kmsg.Request) kmsg.Response {
	r.t.Helper()
	resp, err := r.tryAsk(req)
	if err != nil {
		r.t.Fatalf("%s: %v", kmsg.NameForKey(req.Key()), err)
	}
	return resp
}

func (r *raw) tryAsk(req kmsg.Request) (kmsg.Response, error) {
	if _, err := r.conn.Write(frame(req)); err != nil {
		return nil, err
	}
	return r.answer(req)
}

// answer reads the answer to a request that was sent.
func (r *raw) answer(req kmsg.Request) (kmsg.Response, error) {
	var size [4]byte
	if _, err := io.ReadFull(r.conn, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r.conn, body); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	head := 4
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		head++ // no tagged fields
	}
	return resp, resp.ReadFrom(body[head:])
}
