package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/broker/brokertest"
)

// TestServeRefusesFlags: a value that a broker.Config would read as "not set" is not what the user asked for.
func TestServeRefusesFlags(t *testing.T) {
	f := func(want string, flags ...string) {
		t.Helper()
		cmd := root()
		cmd.SetArgs(append([]string{"serve", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir()}, flags...))
		cmd.SetOut(io.Discard)
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // a broker that starts all the same ends at once
		if err := cmd.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("serve %q: %v, want %q", flags, err, want)
		}
	}
	f("--data-dir is empty", "--data-dir", "")
	f("--node-id is 0", "--node-id", "0")
	f("--node-id is -1", "--node-id", "-1")
	f("--partitions is 0", "--partitions", "0")
	f("--durability is \"\"", "--durability", "")
	f("--max-connections is 0", "--max-connections", "0")
	f("--idle-timeout is 0s", "--idle-timeout", "0s")
	f("transaction.max.timeout.ms is 0, want 1 to 2147483647", "--transaction-max-timeout-ms", "0")
	f("offset.metadata.max.bytes is 2000000, want 1 to 1048576", "--offset-metadata-max-bytes", "2000000")
	f(`group.max.size is "many", want 1 to 2147483647`, "--group-max-size", "many")
	f(`auto.create.topics.enable is "perhaps", want false, true`, "--auto-create-topics-enable", "perhaps")
	f("group.min.session.timeout.ms is 6000, above group.max.session.timeout.ms, 5000", "--group-max-session-timeout-ms", "5000")
	f("group.consumer.session.timeout.ms is 5000, want 45000 to 60000", "--group-consumer-session-timeout-ms", "5000")
	f("--advertise is given with 2", "--listen", "127.0.0.1:0", "--advertise", "a:1")
}

func TestServeSaysWhatToDoAboutAFolderInUse(t *testing.T) {
	dir := t.TempDir()
	b := brokertest.Start(t, brokertest.Dir(dir))
	cmd := root()
	cmd.SetArgs([]string{"serve", "--listen", "127.0.0.1:0", "--data-dir", dir})
	want := "the data folder " + dir + " is in use by another broker: stop that one, or choose another folder with --data-dir"
	if err := cmd.ExecuteContext(t.Context()); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}

func TestParseListeners(t *testing.T) {
	f := func(advertise, want string, listen ...string) {
		t.Helper()
		all, err := parseListeners(listen, advertise)
		if err != nil {
			if want == "" || !strings.Contains(err.Error(), want) {
				t.Errorf("%q, advertise %q: %v, want %q", listen, advertise, err, want)
			}
			return
		}
		var got []string
		for _, l := range all {
			got = append(got, l.Listen+">"+l.Advertise)
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q, advertise %q: %s, want %s", listen, advertise, text, want)
		}
	}
	f("", ":9092>", ":9092")
	f("a:1", ":9092>a:1", ":9092")
	f("", "0.0.0.0:9092>broker:9092 [::]:9094>[2001:db8::1]:19094", "0.0.0.0:9092=broker:9092", "[::]:9094=[2001:db8::1]:19094")
	f("", ":9092>a:1 :9093>", ":9092=a:1", ":9093")
	f("a:1", "use one of them", ":9092=b:2")
	f("a:1", "write each as", ":9092", ":9093")
	f("", "behind the equals sign", ":9092=")
}
