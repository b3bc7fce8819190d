package producer

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/strandline-io/strandline/internal/alloc"
)

const entrySeedBytes = 24

// FuzzRestore puts entries back as damaged as can be. What is accepted is listed again as it was put in, restores from
// that list, and can go on: batches and markers for everybody. Each entrySeedBytes are one entry.
func FuzzRestore(f *testing.F) {
	good := appendEntry(nil, Entry{ProducerID: 1, TouchedMs: 5, TxnFirstOffset: noOffset, Batches: []CachedBatch{{LastSequence: 3, LastOffset: 9}}})
	open := appendEntry(nil, Entry{ProducerID: 2, Epoch: 1, TouchedMs: 6, TxnFirstOffset: 4, Batches: []CachedBatch{{LastSequence: 3, Delta: 2, LastOffset: 9}}})
	f.Add(good)
	f.Add(slices.Concat(good, open))
	f.Add(slices.Concat(open, open))
	f.Add(slices.Concat(good, good))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p *Partition
		var accepted int
		alloc.Within(t, len(data), 64, func() { p, accepted = restoreEntries(data) })
		idle, open := slices.Collect(entriesOf(p.table.Idle())), slices.Collect(entriesOf(p.OpenEntries()))
		if len(idle)+len(open) != accepted || accepted != p.table.Len() {
			t.Fatalf("%d idle and %d open entries, %d were accepted, %d counted", len(idle), len(open), accepted, p.table.Len())
		}
		again := NewTable(Config{}).NewPartition(7)
		for _, e := range slices.Concat(idle, open) {
			if err := again.Restore(e); err != nil {
				t.Fatalf("own entry %+v: %v", e, err)
			}
		}
		for i, list := range [][]Entry{slices.Collect(entriesOf(again.table.Idle())), slices.Collect(entriesOf(again.OpenEntries()))} {
			if diff := cmp.Diff([][]Entry{idle, open}[i], list, cmpopts.EquateEmpty()); diff != "" {
				t.Fatal(diff)
			}
		}
		goOn(t, p, slices.Concat(idle, open))
	})
}

// entriesOf copies what the yielded entries only lend.
func entriesOf(lent func(func(Entry) bool)) func(func(Entry) bool) {
	return func(yield func(Entry) bool) {
		lent(func(e Entry) bool {
			e.Batches = slices.Clone(e.Batches)
			return yield(e)
		})
	}
}

func restoreEntries(data []byte) (p *Partition, accepted int) {
	p = NewTable(Config{}).NewPartition(7)
	for e := range slices.Chunk(data, entrySeedBytes) {
		if len(e) == entrySeedBytes && p.Restore(readEntry(e)) == nil {
			accepted++
		}
	}
	return p, accepted
}

func readEntry(b []byte) Entry {
	e := Entry{
		Partition: 7, ProducerID: int64(int8(b[0])), Epoch: int16(binary.BigEndian.Uint16(b[1:])), CoordinatorEpoch: int32(int8(b[3])),
		LastTimestampMs: int64(int8(b[4])), TouchedMs: int64(int8(b[5])), TxnFirstOffset: int64(int8(b[6])),
	}
	for range b[7] % (maxCachedBatches + 2) {
		e.Batches = append(e.Batches, CachedBatch{
			LastSequence: int32(binary.BigEndian.Uint32(b[8:])), Delta: int32(binary.BigEndian.Uint32(b[12:])),
			LastOffset: int64(binary.BigEndian.Uint64(b[16:])), TimestampMs: int64(int8(b[4])),
		})
	}
	return e
}

func appendEntry(dst []byte, e Entry) []byte {
	dst = append(dst, byte(e.ProducerID))
	dst = binary.BigEndian.AppendUint16(dst, uint16(e.Epoch))
	dst = append(dst, byte(e.CoordinatorEpoch), byte(e.LastTimestampMs), byte(e.TouchedMs), byte(e.TxnFirstOffset), byte(len(e.Batches)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.Batches[0].LastSequence))
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.Batches[0].Delta))
	return binary.BigEndian.AppendUint64(dst, uint64(e.Batches[0].LastOffset))
}

// goOn lets every producer write and end its transaction: the first unstable offset must be the lowest open one's.
func goOn(t *testing.T, p *Partition, entries []Entry) {
	t.Helper()
	offset := int64(1000)
	check := func() {
		lowest, any := int64(0), false
		for e := range p.OpenEntries() {
			if !any || e.TxnFirstOffset < lowest {
				lowest, any = e.TxnFirstOffset, true
			}
		}
		if got, ok := p.FirstUnstable(); ok != any || ok && got != lowest {
			t.Fatalf("first unstable offset %d, %v; the lowest open is %d, %v", got, ok, lowest, any)
		}
	}
	check()
	for _, e := range entries {
		for _, transactional := range []bool{false, true} {
			b := Batch{ProducerID: e.ProducerID, Epoch: e.Epoch, Transactional: transactional}
			if n := len(e.Batches); n > 0 {
				b.FirstSequence = e.Batches[n-1].LastSequence
			}
			b.LastSequence = b.FirstSequence
			if o := p.Check(b); o.Code == 0 && !o.Duplicate {
				p.ApplyBatch(b, offset, offset, 0, 1000)
				offset++
			}
			check()
		}
		m := Marker{ProducerID: e.ProducerID, Epoch: e.Epoch, CoordinatorEpoch: e.CoordinatorEpoch, Commit: e.Epoch%2 == 0}
		if code, _ := p.CheckMarker(m); code == 0 {
			p.ApplyMarker(m, offset, 0, 1000)
			offset++
		}
		if p.Open(e.ProducerID) {
			t.Fatalf("producer %d still has a transaction open after its marker", e.ProducerID)
		}
		check()
	}
}
