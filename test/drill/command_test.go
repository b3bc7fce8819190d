//go:build peers

package main_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/test/peers"
)

// saboteur makes this test binary do harm to the broker at the address that it holds: double a key or, if the second one
// names the folder of its data and the file with its process id, kill it and forget its newest commits.
const (
	saboteur = "STRANDLINE_SABOTEUR"
	forgets  = "STRANDLINE_FORGETS"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(saboteur); addr != "" {
		harm := func() error { return double(addr) }
		if dir, pid, ok := strings.Cut(os.Getenv(forgets), ","); ok {
			harm = func() error { return forget(addr, dir, pid) }
		}
		if err := harm(); err != nil {
			fmt.Fprintln(os.Stderr, "saboteur:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const doubledKey = "k000000007"

// double writes a key into the output of the drill that runs on a broker.
func double(addr string) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	topics, err := kadm.NewClient(c).ListTopics(ctx)
	if err != nil {
		return err
	}
	value := fmt.Sprintf("%s:%x", doubledKey, sha256.Sum256([]byte(doubledKey)))
	for _, topic := range topics.Names() {
		if strings.HasSuffix(topic, "-out") {
			return c.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte(doubledKey), Value: []byte(value)}).FirstErr()
		}
	}
	return fmt.Errorf("no drill's topic among %v", topics.Names())
}

// forget kills a broker and starts it from where its folder was before its newest commits.
func forget(addr, dir, pidFile string) error {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	before, err := committed(ctx, kadm.NewClient(c))
	if err != nil {
		return err
	}
	old := dir + ".old"
	if err := errors.Join(syscall.Kill(pid, syscall.SIGSTOP), os.CopyFS(old, os.DirFS(dir)), syscall.Kill(pid, syscall.SIGCONT)); err != nil {
		return err
	}
	// Workers go on until the kill is long due, so there is more to come.
	for now := before; now < before+100; {
		if now, err = committed(ctx, kadm.NewClient(c)); err != nil {
			return err
		}
	}
	return errors.Join(syscall.Kill(pid, syscall.SIGKILL), os.RemoveAll(dir), os.Rename(old, dir))
}

// committed is the sum of the committed offsets of all groups.
func committed(ctx context.Context, admin *kadm.Client) (sum int64, err error) {
	groups, err := admin.ListGroups(ctx)
	if err != nil {
		return 0, err
	}
	for _, group := range admin.FetchManyOffsets(ctx, groups.Groups()...) {
		if group.Err != nil {
			return 0, group.Err
		}
		group.Fetched.Each(func(o kadm.OffsetResponse) { sum += o.At })
	}
	return sum, nil
}

// run runs `strandline drill` to its end and returns its exit code and all of its output.
func run(t *testing.T, bin string, env []string, flags ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	cmd := exec.CommandContext(t.Context(), bin, append([]string{"drill"}, flags...)...)
	cmd.Stdout, cmd.Stderr = &b, &b
	cmd.Env = append(os.Environ(), env...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), b.String()
}

func empty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left in %s: %v, %v", dir, left, err)
	}
}

var killRow = regexp.MustCompile(`(?m)^(\d+) +\d+\.\d+ s +(\d+) +\d+ % +\d+\.\d+ s$`)

// TestDrillHolds: a short drill on both durabilities, with its kills inside the work.
func TestDrillHolds(t *testing.T) {
	bin := peers.Binary(t, "./cmd/strandline")
	for _, durability := range []string{"fsync", "write"} {
		t.Run(durability, func(t *testing.T) {
			temp := t.TempDir()
			code, out := run(t, bin, []string{"TMPDIR=" + temp}, "--records", "6000", "--kills", "3", "--every", "1s", "--durability", durability)
			if code != 0 || !strings.Contains(out, "6000 of 6000") {
				t.Fatalf("exit code %d:\n%s", code, out)
			}
			rows := killRow.FindAllStringSubmatch(out, -1)
			if len(rows) != 3 {
				t.Errorf("%d kills inside the work, want 3:\n%s", len(rows), out)
			}
			for _, row := range rows {
				if moved, err := strconv.Atoi(row[2]); err != nil || moved >= 6000 {
					t.Errorf("kill %s after %s of 6000 records was not inside the work", row[1], row[2])
				}
			}
			empty(t, temp)
		})
	}
}

// TestDrillFindsADoubledKey drills a broker that is started and killed by shell commands, of which the second doubles a
// key before it kills.
func TestDrillFindsADoubledKey(t *testing.T) {
	bin, dir := peers.Binary(t, "./cmd/strandline"), t.TempDir()
	addr, pid := "127.0.0.1:"+strconv.Itoa(peers.FreePort(t)), filepath.Join(dir, "pid")
	code, out := run(t, bin, nil, "--brokers", addr, "--records", "6000", "--kills", "1", "--every", "1s",
		"--start-cmd", fmt.Sprintf("echo $$ >'%s'; exec '%s' serve --listen %s --data-dir '%s'", pid, bin, addr, filepath.Join(dir, "data")),
		"--kill-cmd", fmt.Sprintf("%s=%s '%s' && kill -9 $(cat '%s')", saboteur, addr, os.Args[0], pid))
	if code != 1 || !strings.Contains(out, "6000 of 6000") || !regexp.MustCompile(`doubled: \d, such as `+doubledKey).MatchString(out) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Errorf("the broker that --start-cmd started still runs")
	}
}

// TestDrillFindsWhatAKillTookAlong drills a broker that forgets its newest commits when it is killed, records and offsets
// alike: what it forgot is moved again, so that no key is missing in the end.
func TestDrillFindsWhatAKillTookAlong(t *testing.T) {
	bin, dir := peers.Binary(t, "./cmd/strandline"), t.TempDir()
	addr, pid, data := "127.0.0.1:"+strconv.Itoa(peers.FreePort(t)), filepath.Join(dir, "pid"), filepath.Join(dir, "data")
	code, out := run(t, bin, nil, "--brokers", addr, "--records", "60000", "--kills", "1", "--every", "1m",
		"--start-cmd", fmt.Sprintf("echo $$ >'%s'; exec '%s' serve --listen %s --data-dir '%s'", pid, bin, addr, data),
		"--kill-cmd", fmt.Sprintf("if mkdir '%s'; then %s=%s %s='%s,%s' '%s'; else kill -9 $(cat '%s'); fi",
			filepath.Join(dir, "forgot"), saboteur, addr, forgets, data, pid, os.Args[0], pid))
	if code != 1 || !regexp.MustCompile(`kill 1: the group is at \d+ in partition \d, it had committed \d+`).MatchString(out) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// TestDrillNoticesThatNothingWasKilled: a kill command that does nothing proves nothing.
func TestDrillNoticesThatNothingWasKilled(t *testing.T) {
	b := peers.StartBroker(t, t.TempDir())
	code, out := run(t, peers.Binary(t, "./cmd/strandline"), nil, "--brokers", b.Addr, "--records", "1000", "--kills", "1",
		"--kill-cmd", "true", "--restart-cmd", "true")
	if code != 2 || !strings.Contains(out, "still answers") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// TestInterruptedDrillCleansUp: after Ctrl-C no broker and no folder is left.
func TestInterruptedDrillCleansUp(t *testing.T) {
	temp := t.TempDir()
	cmd := exec.Command(peers.Binary(t, "./cmd/strandline"), "drill", "--kills", "50", "--every", "200ms")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	p := peers.Start(t, "strandline drill", cmd)
	addr := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(p.WaitLine(t, "broker "))
	p.WaitLine(t, "kill 1 of 50")
	if err := p.Interrupt(); err == nil || !strings.Contains(p.Output(), "interrupted after") {
		t.Errorf("ended with %v:\n%s", err, p.Output())
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Errorf("the broker still runs at %s", addr)
	}
	empty(t, temp)
}
