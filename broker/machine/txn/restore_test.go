package txn

import "testing"

func TestRestoreRefuses(t *testing.T) {
	good := Entry{ID: "b", ProducerID: 7, PrevProducerID: None, LastEpoch: None, TimeoutMs: 1, StartMs: None, UpdatedMs: 50}
	f := func(name string, change func(*Entry)) {
		t.Helper()
		c := New(Config{})
		if err := c.Restore(Entry{ID: "a", TimeoutMs: 1, StartMs: None, UpdatedMs: 40}, 100); err != nil {
			t.Fatal(err)
		}
		e := good
		change(&e)
		if err := c.Restore(e, 100); (err == nil) != (name == "good") {
			t.Errorf("%s: %v", name, err)
		}
	}
	f("good", func(*Entry) {})
	f("twice", func(e *Entry) { e.ID = "a" })
	f("no id", func(e *Entry) { e.ID = "" })
	f("a passing state", func(e *Entry) { e.State = PrepareAbort })
	f("an unknown state", func(e *Entry) { e.State = 9 })
	f("no timeout", func(e *Entry) { e.TimeoutMs = 0 })
	f("no producer id", func(e *Entry) { e.ProducerID = None })
	f("no epoch", func(e *Entry) { e.Epoch = None })
	f("from the future", func(e *Entry) { e.UpdatedMs = 101 })
	f("out of order", func(e *Entry) { e.UpdatedMs = 39 })
	f("idle with a transaction", func(e *Entry) { e.StartMs = 50 })
	f("open without a begin", func(e *Entry) { e.State = Ongoing })
	f("open from the future", func(e *Entry) { e.State, e.StartMs = Ongoing, 101 })
	f("idle with partitions", func(e *Entry) { e.Partitions = []uint32{1} })
	f("idle with groups", func(e *Entry) { e.Groups = []string{"g"} })
	f("partitions out of order", func(e *Entry) { e.State, e.StartMs, e.Partitions = Ongoing, 50, []uint32{2, 1} })
}

func TestApplyRefuses(t *testing.T) {
	c := New(Config{})
	if _, err := c.ApplyInit(Init{ID: "a", ProducerID: 1, TimeoutMs: 1}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ApplyAdd(Add{ID: "a", Partitions: []uint32{1}}, 0); err != nil {
		t.Fatal(err)
	}
	f := func(name string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s is applied", name)
		}
	}
	sumless := func(_ uint64, err error) error { return err }
	f("a new producer in an open transaction", sumless(c.ApplyInit(Init{ID: "a", ProducerID: 1, TimeoutMs: 1}, 0)))
	f("no id", sumless(c.ApplyInit(Init{ProducerID: 1, TimeoutMs: 1}, 0)))
	f("no timeout", sumless(c.ApplyInit(Init{ID: "b", ProducerID: 1}, 0)))
	f("an unknown id's partitions", sumless(c.ApplyAdd(Add{ID: "b"}, 0)))
	f("an unknown id's end", sumless(c.ApplyEnd(End{ID: "b"}, 0)))
	f("an end without an epoch", sumless(c.ApplyEnd(End{ID: "a", Epoch: None}, 0)))
	f("an unknown id's expiry", c.ApplyExpire(Expire{ID: "b"}))
	f("an open id's expiry", c.ApplyExpire(Expire{ID: "a"}))
	if _, err := c.ApplyEnd(End{ID: "a", Commit: true, ProducerID: 1}, 0); err != nil {
		t.Fatal(err)
	}
	f("a commit of nothing", sumless(c.ApplyEnd(End{ID: "a", Commit: true, ProducerID: 1}, 0)))
	f("a fence of nothing", sumless(c.ApplyEnd(End{ID: "a", Fence: true, ProducerID: 1}, 0)))
}
