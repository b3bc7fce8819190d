package machine

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/alloc"
)

// lively is a world with a bit of everything.
func lively(t testing.TB) *world {
	w := newWorld(t, randomConfig)
	for _, line := range []string{
		"topic t 2", "topic u 1", "init plain", "init id=x timeout=5000", "init id=y timeout=5000",
		"produce plain t/0:0:a", "produce plain t/1:-:b,c", "add id=x pid=1 t/0 u/0", "produce id=x pid=1 t/0:0:d",
		"txncommit id=x pid=1 group=g t/0=4", "end id=x pid=1", "produce id=y pid=2 t/1:0:e", "delete u",
		"produce id=x pid=1 epoch=1 t/0:0:f",
	} {
		if answer := w.run(line); answer != strings.ToLower(answer) {
			t.Fatalf("%s: %s", line, answer)
		}
	}
	w.do(&Shelved{Partitions: []ShelvedLength{{Partition: 1, FileBytes: 9, EndOffset: 2}}})
	return w
}

func headersOf(u Unit) (headers [][]byte) {
	for _, b := range u.Batches {
		headers = append(headers, b.Bytes[:record.HeaderSize])
	}
	return headers
}

// FuzzReplay: whatever a journal holds, Replay ends, with success or an error, and a machine that took it can be kept.
func FuzzReplay(f *testing.F) {
	w := lively(f)
	for _, u := range w.journal {
		f.Add(u.Meta, bytes.Join(headersOf(u), nil))
	}
	snapshot := w.m.AppendSnapshot(nil)
	f.Fuzz(func(t *testing.T, meta, batches []byte) {
		var headers [][]byte
		for chunk := range slices.Chunk(batches, record.HeaderSize) {
			headers = append(headers, chunk)
		}
		empty := New(Config{}).AppendSnapshot(nil)
		replayAnything(t, Config{}, empty, meta, headers)
		replayAnything(t, Config{}, snapshot, meta, headers)
	})
}

// replayAnything replays a unit on top of a snapshot that is whole.
func replayAnything(t *testing.T, cfg Config, snapshot, meta []byte, headers [][]byte) {
	t.Helper()
	if _, err := BatchPartitions(meta, nil); err != nil && !errors.Is(err, ErrCorrupt) {
		t.Fatalf("BatchPartitions: %v does not wrap ErrCorrupt", err)
	}
	var m *Machine
	var err error
	alloc.Within(t, len(snapshot)+len(meta)+len(headers)*record.HeaderSize, 512, func() {
		if m, err = Restore(cfg, snapshot); err != nil {
			t.Fatal(err)
		}
		err = m.Replay(meta, headers)
	})
	if err != nil {
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%v does not wrap ErrCorrupt", err)
		}
		return
	}
	again, err := Restore(cfg, m.AppendSnapshot(nil))
	if err != nil {
		t.Fatalf("a replayed state cannot be restored: %v", err)
	}
	if again.Hash() != m.Hash() {
		t.Fatal("a restored state has another hash")
	}
}

// FuzzRestore: a snapshot of any bytes gives a machine or an error; what a machine came out of is written again alike.
func FuzzRestore(f *testing.F) {
	f.Add(lively(f).m.AppendSnapshot(nil))
	f.Add(New(Config{}).AppendSnapshot(nil))
	f.Fuzz(func(t *testing.T, data []byte) { restoreAnything(t, data) })
}

func restoreAnything(t *testing.T, data []byte) {
	var m *Machine
	var err error
	alloc.Within(t, len(data), 512, func() { m, err = Restore(Config{}, data) })
	if err != nil {
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%v does not wrap ErrCorrupt", err)
		}
		return
	}
	first := m.AppendSnapshot(nil)
	again, err := Restore(Config{}, first)
	if err != nil {
		t.Fatalf("what was restored cannot be restored again: %v", err)
	}
	if !bytes.Equal(again.AppendSnapshot(nil), first) {
		t.Fatal("a snapshot changes by being restored")
	}
}

// TestDamage changes and cuts every byte of real units and of a real snapshot.
func TestDamage(t *testing.T) {
	w := lively(t)
	snapshot := w.m.AppendSnapshot(nil)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range snapshot {
		damaged := slices.Clone(snapshot)
		damaged[i] ^= byte(1 + r.IntN(255))
		restoreAnything(t, damaged)
		if _, err := Restore(Config{}, snapshot[:i]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("a snapshot cut at %d of %d bytes: %v", i, len(snapshot), err)
		}
	}
	if _, err := Restore(Config{}, append(slices.Clone(snapshot), 0)); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a snapshot with a byte too many: %v", err)
	}
	m := New(randomConfig)
	for n, u := range w.journal {
		headers := headersOf(u)
		before := m.AppendSnapshot(nil)
		for i := range u.Meta {
			damaged := slices.Clone(u.Meta)
			damaged[i] ^= byte(1 + r.IntN(255))
			replayAnything(t, randomConfig, before, damaged, headers)
		}
		if len(headers) > 0 {
			copy, _ := Restore(randomConfig, before)
			if err := copy.Replay(u.Meta, headers[1:]); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("unit %d without its first batch: %v", n, err)
			}
			copy, _ = Restore(randomConfig, before)
			if err := copy.Replay(u.Meta, append(headers, headers[0])); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("unit %d with a batch too many: %v", n, err)
			}
		}
		if err := m.Replay(u.Meta, headers); err != nil {
			t.Fatal(err)
		}
	}
}

// A unit from a newer program, or one that does not follow, is damage that says so.
func TestReplayRefuses(t *testing.T) {
	w := lively(t)
	f := func(name string, meta []byte) {
		t.Helper()
		m, err := Restore(randomConfig, w.m.AppendSnapshot(nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Replay(meta, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f("nothing", nil)
	f("version 2", []byte{2, 0, 0})
	f("time before the last unit's", []byte{1, 0, 0})
	m := w.m
	for name, kind := range map[string]uint8{"kind 31": 31, "kind 60": 60, "group kind 95": 95, "kind 200": 200} {
		f(name, append(unitHead(w.now), kind, 0))
	}
	f("an incarnation again", append(unitHead(w.now), kindIncarnation, 1, byte(m.incarnation)))
	f("a topic that is there", w.journal[1].Meta)
	f("an unknown topic gone", append(unitHead(w.now), kindTopicDeleted, 2, 1, 'z'))
	f("producer ids again", append(unitHead(w.now), kindProducerIDs, 1, 2))
	f("an unknown partition shelved", append(unitHead(w.now), kindShelved, 5, 1, 99, 0, 0, 2))
	f("a partition shelved beyond its end", append(unitHead(w.now), kindShelved, 6, 1, 1, 0, 0, 0xff, 1))
	f("an open transaction's producer forgotten", append(unitHead(w.now), kindProducerForgotten, 2, 1, 2))
	f("an open transaction's id forgotten", append(unitHead(w.now), kindTxnExpire, 2, 1, 'x'))
}

func unitHead(now Now) []byte {
	m := New(Config{})
	var out Out
	m.Step(&Op{ID: 1, Now: now, Body: &Incarnation{Number: 1}}, &out)
	return out.Units[0].Meta[:len(out.Units[0].Meta)-3]
}

// A batch that does not follow, or is not what its record says, is damage.
func TestReplayRefusesBatches(t *testing.T) {
	w := newWorld(t, Config{})
	w.topic("t", 1)
	w.run("init")
	w.run("produce t/0:0:a")
	data := w.journal[len(w.journal)-1]
	w.run("end commit")
	marker := w.journal[len(w.journal)-1]
	before := New(Config{})
	for _, u := range w.journal[:len(w.journal)-2] {
		if err := before.Replay(u.Meta, headersOf(u)); err != nil {
			t.Fatal(err)
		}
	}
	f := func(name string, units []Unit, at int, value ...byte) {
		t.Helper()
		m, err := Restore(Config{}, before.AppendSnapshot(nil))
		if err != nil {
			t.Fatal(err)
		}
		for i, u := range units {
			header := slices.Clone(u.Batches[0].Bytes[:record.HeaderSize])
			last := i == len(units)-1
			if last {
				copy(header[at:], value)
			}
			if err := m.Replay(u.Meta, [][]byte{header}); errors.Is(err, ErrCorrupt) != last {
				t.Errorf("%s, unit %d: %v", name, i, err)
			}
		}
	}
	first, both := []Unit{data}, []Unit{data, marker}
	f("base offset", first, 7, 1)
	f("leader epoch", first, 15, 2)
	f("control bit in data", first, 22, 0x30)
	f("transactional without a producer", first, 43, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	f("producer without epoch", first, 51, 0xff, 0xff)
	f("producer without sequence", first, 53, 0xff)
	f("negative count", first, 23, 0xff)
	f("another magic", first, 16, 1)
	f("marker without control bit", both, 22, 0x10)
	f("marker without producer", both, 43, 0xff)
	f("marker of two offsets", both, 26, 1)
	f("marker of an older epoch", both, 51, 0, 0)
}
