package machine

import (
	"strings"
	"testing"

	"github.com/strandline-io/strandline/broker/machine/group"
)

func TestConfig(t *testing.T) {
	f := func(c Config, want ...string) {
		t.Helper()
		err := c.Validate()
		if (err == nil) != (len(want) == 0) {
			t.Errorf("%+v: %v", c, err)
		}
		for _, w := range want {
			if err != nil && !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %v does not name %s", c, err, w)
			}
		}
	}
	f(Config{})
	f(Config{NodeID: -1, DefaultPartitions: 11, MaxPartitionsPerTopic: 10}, "NodeID is -1", "DefaultPartitions 11")
	f(Config{MaxPartitionsPerTopic: 10_001}, "MaxPartitionsPerTopic is 10001")
	f(Config{Group: group.Config{MaxGroups: -1}}, "MaxGroups")
}

// What has no operation is the connection's mistake.
func TestUnknownBody(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.HasPrefix(r.(string), "BUG: ") {
			t.Errorf("recovered %v", r)
		}
	}()
	newWorld(t, Config{}).do(&struct{}{})
}

// An Out that is used again holds nothing of before.
func TestReset(t *testing.T) {
	m := New(Config{})
	var out Out
	m.Step(&Op{ID: 1, Body: &Incarnation{Number: 1}}, &out)
	meta := out.Units[0].Meta
	kept := string(meta)
	out.Reset()
	m.Step(&Op{ID: 2, Body: &Incarnation{Number: 2}}, &out)
	if len(out.Units) != 1 || string(meta) != kept {
		t.Errorf("%d units; the first Meta became %x, was %x", len(out.Units), meta, kept)
	}
	var headers [][]byte
	again := New(Config{})
	if again.Replay(meta, headers) != nil || again.Replay(out.Units[0].Meta, headers) != nil || again.Hash() != m.Hash() {
		t.Error("the two units do not lead to the machine's state")
	}
}

// A clock that runs backwards does not: time in the journal only moves on.
func TestTimeOnlyMovesOn(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init timeout=1000")
	w.run("add t/0")
	before := w.m.LastNow().EngineMs
	w.now.EngineMs -= 500
	w.now.WallMs -= 5000
	w.run("produce t/0:0:a")
	if w.m.LastNow().EngineMs != before {
		t.Errorf("engine time went from %d to %d", before, w.m.LastNow().EngineMs)
	}
	if due, _ := w.m.NextTimer(); due != before+1000 {
		t.Errorf("the transaction ends at %d, want %d", due, before+1000)
	}
}
