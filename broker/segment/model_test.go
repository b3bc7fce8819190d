package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-io/strandline/internal/vfs"
)

// world is a store beside a model of what it must hold, driven by a seed.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	maker   *maker
	disk    *vfs.Mem
	cfg     Config
	journal *fakeJournal
	store   *Store
	lengths map[uint32]Length // as journaled
	logs    map[uint32]*Log
	old     []*Log // of partition oldID, taken at some time
	oldID   uint32
	nextID  uint32

	batches map[uint32][]modelBatch
	starts  map[uint32]int64 // log start of those that were trimmed
	sealed  []uint64
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), maker: newMaker(seed), disk: vfs.NewMem(), journal: newFakeJournal(),
		lengths: map[uint32]Length{}, logs: map[uint32]*Log{}, batches: map[uint32][]modelBatch{},
		starts: map[uint32]int64{},
	}
	w.cfg = smallConfig()
	w.cfg.SegmentBytes = 2000 + w.rng.Int64N(10_000)
	w.cfg.IndexIntervalBytes = 100 + w.rng.Int64N(500)
	w.cfg.WindowBytes = 500 + w.rng.IntN(20_000)
	w.store = open(t, w.disk, w.cfg, nil)
	for range 3 {
		w.addPartition()
	}
	return w
}

func (w *world) addPartition() {
	w.logs[w.nextID] = w.store.NewLog(w.journal, w.nextID)
	w.batches[w.nextID] = nil
	w.nextID++
}

// partition picks one; maps are walked in order so that a seed means one run.
func (w *world) partition() uint32 {
	ids := make([]uint32, 0, len(w.logs))
	for id := range w.logs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids[w.rng.IntN(len(ids))]
}

func (w *world) step() {
	switch w.rng.IntN(20) {
	case 0, 1, 2, 3, 4, 5, 6, 7:
		w.append()
	case 8, 9:
		w.sealed = append(w.sealed, w.journal.active)
		w.journal.seal()
	case 10, 11:
		w.shelve(false)
	case 12:
		w.shelve(true)
	case 13:
		w.crash()
	case 14:
		if w.rng.IntN(4) == 0 {
			w.forget()
		}
	case 16:
		w.trim()
	case 15:
		w.oldID = w.partition()
		w.old = []*Log{w.logs[w.oldID]}
	default:
		w.read()
	}
}

func (w *world) append() {
	id := w.partition()
	var extents []Extent
	for range 1 + w.rng.IntN(4) {
		base := w.logs[id].EndOffset()
		if n := len(extents); n > 0 {
			base = extents[n-1].LastOffset() + 1
		}
		b := w.maker.batch(base)
		b.extent = w.journal.put(id, b.raw, w.rng.IntN(3)*w.rng.IntN(3000))
		extents = append(extents, b.extent.Extent)
		w.batches[id] = append(w.batches[id], b)
	}
	w.logs[id] = w.logs[id].Append(extents...)
}

// inSegment is what a sealed segment holds of partitions that still exist, in the journal's order.
func (w *world) inSegment(segment uint64) []Shelving {
	var all []Shelving
	for id := range w.batches {
		for _, b := range w.batches[id] {
			if b.extent.Segment == segment {
				all = append(all, b.extent)
			}
		}
	}
	slices.SortFunc(all, byPlace)
	return all
}

var errInjected = errors.New("injected")

// shelve moves the oldest sealed segment; it may fail anywhere, then is repeated, or the process dies, maybe after
// the lengths were journaled, maybe before.
func (w *world) shelve(trouble bool) {
	if len(w.sealed) == 0 {
		return
	}
	segment := w.sealed[0]
	batches := w.inSegment(segment)
	if trouble {
		ops := []vfs.Op{vfs.OpWrite, vfs.OpSync, vfs.OpOpen, vfs.OpCreate, vfs.OpSyncDir, vfs.OpAllocate}
		w.disk.FailNext(ops[w.rng.IntN(len(ops))], w.rng.IntN(mostSkipped), errInjected)
	}
	lengths, err := w.store.Shelve(w.journal, batches)
	w.useUpFaults()
	if err != nil {
		if !trouble || !errors.Is(err, errInjected) {
			w.t.Fatal(err)
		}
		w.read()
		if w.rng.IntN(2) == 0 {
			w.crash()
		}
		return
	}
	if w.rng.IntN(6) == 0 {
		w.crash()
		return
	}
	for _, l := range lengths {
		w.lengths[l.Partition] = l
		if files := w.store.Files(l.Partition); files.EndOffset() != l.EndOffset {
			w.t.Fatalf("files end at %d, length says %+v", files.EndOffset(), l)
		}
		w.logs[l.Partition] = w.logs[l.Partition].WithShelved(w.store.Files(l.Partition))
	}
	w.sealed = w.sealed[1:]
	w.journal.free(segment)
}

const mostSkipped = 6

// useUpFaults meets what was injected and did not happen.
func (w *world) useUpFaults() {
	for range mostSkipped + 1 {
		f, err := w.disk.Create(fmt.Sprintf("scratch%d", w.rng.Uint64()))
		if err != nil {
			f, err = w.disk.Create(fmt.Sprintf("scratch%d", w.rng.Uint64()))
		}
		if err != nil {
			w.t.Fatal(err)
		}
		_, errWrite := f.WriteAt([]byte("x"), 0)
		_, errOpen := w.disk.Open("missing")
		for _, err := range []error{errWrite, errOpen, f.Sync(), f.Truncate(0), w.disk.SyncDir("."), f.Close()} {
			if err != nil && !errors.Is(err, errInjected) && !errors.Is(err, fs.ErrNotExist) {
				w.t.Fatal(err)
			}
		}
	}
}

func (w *world) crash() {
	if w.rng.IntN(2) == 0 {
		w.disk = w.disk.ProcessCrash()
	} else {
		w.disk = w.disk.PowerLoss(w.rng.Uint64())
	}
	var lengths []Length
	for _, l := range w.lengths {
		lengths = append(lengths, l)
	}
	w.store = open(w.t, w.disk, w.cfg, lengths)
	w.old = nil
	slices.SortFunc(lengths, func(a, b Length) int { return int(a.Partition) - int(b.Partition) })
	if got := w.store.Lengths(); len(lengths) > 0 && !cmp.Equal(lengths, got) {
		w.t.Fatalf("lengths after Open:\n%s", cmp.Diff(lengths, got))
	}
	for id := range w.logs {
		log := w.store.NewLog(w.journal, id)
		for _, b := range w.batches[id] {
			if _, there := w.journal.segments[b.extent.Segment]; there {
				log = log.Append(b.extent.Extent)
			}
		}
		w.logs[id] = log
	}
}

func (w *world) forget() {
	id := w.partition()
	log := w.logs[id]
	if err := w.store.Forget(id); err != nil {
		w.t.Fatal(err)
	}
	delete(w.lengths, id)
	delete(w.logs, id)
	if n := len(w.store.Files(id).list); n != 0 {
		w.t.Fatalf("%d files of a forgotten partition", n)
	}
	if log.ShelvedOffset() > 0 {
		if _, err := log.Read(nil, 0, log.EndOffset(), 100, true); !errors.Is(err, ErrMoved) {
			w.t.Fatalf("reading a forgotten partition: %v", err)
		}
	}
	delete(w.batches, id)
	delete(w.starts, id)
	w.addPartition()
}

// trim moves a log start up; what a failure or a crash leaves behind does not matter to readers.
func (w *world) trim() {
	id := w.partition()
	w.starts[id] = max(w.starts[id], w.rng.Int64N(w.logs[id].EndOffset()+1))
	if w.rng.IntN(4) == 0 {
		w.disk.FailNext(vfs.OpRemove, w.rng.IntN(3), errInjected)
	}
	err := w.store.Trim(id, w.starts[id], func(left Files) { w.logs[id] = w.logs[id].WithShelved(left) })
	if err != nil && !errors.Is(err, errInjected) {
		w.t.Fatal(err)
	}
	for range 4 { // meet what was injected and did not happen
		_ = w.disk.Remove("missing")
	}
	files := w.store.Files(id).list
	if len(files) > 0 && files[0].sealed && files[0].endOffset <= w.starts[id] {
		w.t.Fatalf("the file of offsets up to %d is there, the log starts at %d", files[0].endOffset, w.starts[id])
	}
	for i := range files {
		if _, err := w.disk.Open(files[i].logName()); err != nil {
			w.t.Fatalf("a file that is left: %v", err)
		}
	}
	if err == nil && w.rng.IntN(3) == 0 {
		w.crash()
	}
}

func (w *world) read() {
	id := w.partition()
	w.readLog(w.logs[id], w.batches[id], w.starts[id], false)
	for _, log := range w.old {
		if batches, ok := w.batches[w.oldID]; ok {
			w.readLog(log, batches, w.starts[w.oldID], true)
		}
	}
}

func (w *world) readLog(log *Log, batches []modelBatch, start int64, old bool) {
	for len(batches) > 0 && batches[len(batches)-1].last >= log.EndOffset() {
		batches = batches[:len(batches)-1]
	}
	end := log.EndOffset()
	if n := len(batches); n > 0 && batches[n-1].last+1 != end || log.StartOffset() > min(start, end) {
		w.t.Fatalf("log holds %d to %d, the model ends with %+v", log.StartOffset(), end, batches[n-1])
	}
	start = min(start, end) // of an old log
	from, upTo := start+w.rng.Int64N(end-start+2), w.rng.Int64N(end+2)
	if w.rng.IntN(3) > 0 {
		upTo = end
	}
	maxBytes, atLeastOne := w.rng.IntN(3000)*(1+w.rng.IntN(5)), w.rng.IntN(2) == 0
	want := modelRead(batches, from, upTo, maxBytes, atLeastOne)
	name := fmt.Sprintf("Read(%d, %d, %d, %v) of %d..%d, files to %d", from, upTo, maxBytes, atLeastOne, log.StartOffset(), end, log.ShelvedOffset())
	ample := append(make([]byte, 0, maxBytes+40_000), "before"...)
	got, err := log.Read(ample, from, upTo, maxBytes, atLeastOne)
	switch {
	case old && errors.Is(err, ErrMoved):
		return
	case err != nil:
		w.t.Fatalf("%s: %v", name, err)
	case old && bytes.HasPrefix(want, got[6:]) && len(got) > 6: // the rest may have moved
	case !bytes.Equal(got[6:], want):
		w.t.Fatalf("%s: %d bytes, want %d", name, len(got)-6, len(want))
	}
	scarce, err := log.Read(make([]byte, 0, w.rng.IntN(maxBytes+1)), from, upTo, maxBytes, atLeastOne)
	if err != nil || !bytes.HasPrefix(want, scarce) || (len(scarce) == 0) != (len(want) == 0) {
		w.t.Fatalf("%s with little room: %d bytes, want up to %d, error %v", name, len(scarce), len(want), err)
	}
	w.lookUp(log, batches, start, upTo)
}

func (w *world) lookUp(log *Log, batches []modelBatch, start, upTo int64) {
	ms := w.maker.clock - w.rng.Int64N(w.maker.clock-1_700_000_000_000+100) + 20
	from := start
	if upTo > start && w.rng.IntN(2) == 0 {
		from += w.rng.Int64N(upTo - start)
	}
	want, wantOK := modelOffsetForTime(batches, ms, from, upTo)
	got, ok, err := log.OffsetForTime(ms, from, upTo)
	if err != nil && !errors.Is(err, ErrMoved) || err == nil && (ok != wantOK || ok && got != want) {
		w.t.Fatalf("OffsetForTime(%d, %d, %d) = %+v, %v, %v, want %+v, %v", ms, from, upTo, got, ok, err, want, wantOK)
	}
	for _, b := range batches {
		if b.base < upTo && b.last >= upTo {
			upTo = b.last + 1
		}
	}
	for _, b := range batches {
		if b.base < from && b.last >= from {
			from = b.last + 1 // a batch's largest timestamp may be that of a record below from
		}
	}
	want, wantOK = modelMaxTimestamp(batches, from, upTo)
	got, ok, err = log.MaxTimestamp(from, upTo)
	if err != nil && !errors.Is(err, ErrMoved) || err == nil && (ok != wantOK || ok && got != want) {
		w.t.Fatalf("MaxTimestamp(%d, %d) = %+v, %v, %v, want %+v, %v", from, upTo, got, ok, err, want, wantOK)
	}
}

func TestModel(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range 150 {
				w.step()
			}
			for id := range w.logs {
				w.readLog(w.logs[id], w.batches[id], w.starts[id], false)
			}
			if w.journal.held != 0 {
				t.Fatalf("%d holds are left", w.journal.held)
			}
			if w.store.handles.count > w.cfg.MaxOpenFiles {
				t.Fatalf("%d open files", w.store.handles.count)
			}
		})
		if !ok {
			return
		}
	}
}
