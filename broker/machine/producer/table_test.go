package producer

import "testing"

func TestBoundOfEntries(t *testing.T) {
	table := NewTable(Config{MaxEntries: 3})
	p, q := table.NewPartition(1), table.NewPartition(2)
	p.ApplyBatch(Batch{ProducerID: 1, Transactional: true}, 0, 0, 0, 10)
	p.ApplyBatch(Batch{ProducerID: 2}, 1, 1, 0, 20)
	q.ApplyBatch(Batch{ProducerID: 2}, 0, 0, 0, 30)
	if !table.Full() {
		t.Fatal("three entries of three, and room left")
	}
	if n, ok := table.Oldest(); !ok || n != (Name{Partition: 1, ProducerID: 2}) {
		t.Fatalf("oldest is %v, %v; want the idle producer of partition 1", n, ok)
	}
	// A touch makes the other one the oldest.
	p.ApplyBatch(Batch{ProducerID: 2, FirstSequence: 1, LastSequence: 1}, 2, 2, 0, 40)
	if n, _ := table.Oldest(); n != (Name{Partition: 2, ProducerID: 2}) {
		t.Fatalf("oldest is %v after the other was touched", n)
	}
	if !q.Remove(2) || q.Remove(2) || p.Remove(1) {
		t.Fatal("an idle producer goes once, one with an open transaction never")
	}
	if !p.Remove(2) || table.Len() != 1 {
		t.Fatalf("%d entries left, want the open one", table.Len())
	}
	if n, ok := table.Oldest(); ok {
		t.Fatalf("oldest is %v, but it has an open transaction", n)
	}
}

func TestDrop(t *testing.T) {
	table := NewTable(Config{})
	p, q := table.NewPartition(1), table.NewPartition(2)
	for _, x := range []*Partition{p, q} {
		x.ApplyBatch(Batch{ProducerID: 1, Transactional: true}, 0, 0, 0, 10)
		x.ApplyBatch(Batch{ProducerID: 2}, 1, 1, 0, 20)
		x.ApplyMarker(Marker{ProducerID: 1}, 2, 0, 25)
		x.ApplyBatch(Batch{ProducerID: 3, Transactional: true}, 3, 3, 0, 30)
		x.Refused(Batch{ProducerID: 4})
	}
	p.Drop()
	if table.Len() != 3 || table.refused.count != 1 {
		t.Fatalf("%d entries and %d refusals left, want partition 2's three and one", table.Len(), table.refused.count)
	}
	for e := range table.Idle() {
		if e.Partition != 2 {
			t.Errorf("producer %d of a dropped partition is idle", e.ProducerID)
		}
	}
	q.Drop()
	if _, ok := table.NextExpiry(); ok || table.Len() != 0 {
		t.Fatal("something is left of dropped partitions")
	}
}

func TestBoundOfRefusals(t *testing.T) {
	table := NewTable(Config{MaxRefused: 2})
	p := table.NewPartition(1)
	f := func(producerID int64, want int16) {
		t.Helper()
		if o := p.Check(Batch{ProducerID: producerID, FirstSequence: 5, LastSequence: 5}); o.Code != want {
			t.Errorf("producer %d: code %d, want %d", producerID, o.Code, want)
		}
	}
	for id := range int64(3) {
		p.Refused(Batch{ProducerID: id})
	}
	f(0, 0) // the first one made room
	f(1, 45)
	f(2, 45)
	p.Forget(1)
	f(1, 0)
	p.Refused(Batch{ProducerID: 9, Epoch: 2, FirstSequence: 3})
	p.Refused(Batch{ProducerID: 9, Epoch: 1, FirstSequence: 0}) // an older epoch does not count
	f(9, 0)
	if o := p.Check(Batch{ProducerID: 9, Epoch: 2, FirstSequence: 5, LastSequence: 5}); o.Code != 45 {
		t.Errorf("code %d, want 45: sequence 3 must come first", o.Code)
	}
}

// A batch that was given up lets those behind it go in, but not past an earlier one that will come again.
func TestGaveUp(t *testing.T) {
	p := NewTable(Config{}).NewPartition(1)
	b := func(sequence int32) Batch {
		return Batch{ProducerID: 1, FirstSequence: sequence, LastSequence: sequence}
	}
	p.Refused(b(0))
	p.GaveUp(b(1))
	if o := p.Check(b(2)); o.Code != 45 {
		t.Errorf("code %d, want 45: sequence 0 was refused and will come again", o.Code)
	}
	p.GaveUp(Batch{ProducerID: 2})
	p.GaveUp(b(0))
	if o := p.Check(b(2)); o.Code != 0 {
		t.Errorf("code %d, want 0: nothing before it will come", o.Code)
	}
	p.Refused(Batch{ProducerID: 1, Epoch: 1})
	p.GaveUp(b(0))
	if o := p.Check(Batch{ProducerID: 1, Epoch: 1, FirstSequence: 1, LastSequence: 1}); o.Code != 45 {
		t.Errorf("code %d, want 45: what an older epoch gave up does not count", o.Code)
	}
}

func TestRestoreRefuses(t *testing.T) {
	f := func(e Entry, why string) {
		t.Helper()
		table := NewTable(Config{})
		p := table.NewPartition(1)
		p.ApplyBatch(Batch{ProducerID: 1, Transactional: true}, 10, 10, 0, 10)
		p.ApplyBatch(Batch{ProducerID: 2}, 11, 11, 0, 20)
		if err := p.Restore(e); err == nil {
			t.Errorf("%s was restored", why)
		}
	}
	f(Entry{ProducerID: 1, TxnFirstOffset: 12}, "a producer that is there")
	f(Entry{ProducerID: 3, TxnFirstOffset: 10}, "a transaction before its predecessor")
	f(Entry{ProducerID: 3, TxnFirstOffset: -1, TouchedMs: 19}, "an idle producer before its predecessor")
	f(Entry{ProducerID: 3, TxnFirstOffset: 12, Batches: make([]CachedBatch, 6)}, "six batches")
	f(Entry{ProducerID: 3, TxnFirstOffset: 12, Batches: []CachedBatch{{Delta: 5, LastOffset: 4}}}, "a batch before offset 0")
	p := NewTable(Config{}).NewPartition(1)
	if p.RestoreAborted([]Aborted{{FirstOffset: 0, LastOffset: 5}, {FirstOffset: 1, LastOffset: 5}}) == nil {
		t.Error("two aborted transactions with one marker were restored")
	}
}

// The aborted list that a reader holds must not change under it.
func TestAbortedPrefixIsShared(t *testing.T) {
	table := NewTable(Config{})
	p := table.NewPartition(1)
	var held [][]Aborted
	for i := range int64(100) {
		p.ApplyBatch(Batch{ProducerID: 1, FirstSequence: int32(i), LastSequence: int32(i), Transactional: true}, 2*i, 2*i, 0, 0)
		p.ApplyMarker(Marker{ProducerID: 1}, 2*i+1, 0, 0)
		held = append(held, p.Aborted())
	}
	for i, a := range held {
		if len(a) != i+1 || cap(a) != i+1 || a[i].LastOffset != int64(2*i+1) {
			t.Fatalf("prefix %d has %d entries and room for %d, the last is %+v", i, len(a), cap(a), a[i])
		}
	}
}
