package producer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/scripttest"
)

func TestScripts(t *testing.T) {
	scripttest.Lines(t, 53, func(t *testing.T) func(string) string { return newWorld(t, Config{}).run })
}

// world is one partition, appended to as a broker does, and a second one that follows by what was applied.
type world struct {
	t        *testing.T
	cfg      Config
	table    *Table
	p        *Partition
	end      int64
	engineMs int64
}

func newWorld(t *testing.T, cfg Config) *world {
	w := &world{t: t, cfg: cfg, table: NewTable(cfg)}
	w.p = w.table.NewPartition(1)
	return w
}

// args are a command's words.
type args struct{ scripttest.Command }

// batch reads pid, epoch, seq=first..last (or one number), txn, v2.
func (a *args) batch() Batch {
	first, last, ranged := strings.Cut(a.Values["seq"], "..")
	if !ranged {
		last = first
	}
	f, err1 := strconv.ParseInt(first, 10, 32)
	l, err2 := strconv.ParseInt(last, 10, 32)
	if err1 != nil || err2 != nil {
		panic(fmt.Sprintf("bad seq %q", a.Values["seq"]))
	}
	return Batch{
		ProducerID: a.Num("pid", 7), Epoch: int16(a.Num("epoch", 0)), FirstSequence: int32(f), LastSequence: int32(l),
		Transactional: a.Has("txn"), BumpsEpoch: a.Has("v2"),
	}
}

func (w *world) run(command string) string {
	a := &args{scripttest.Parse(command)}
	switch a.Verb {
	case "batch":
		return w.batch(a)
	case "marker":
		return w.marker(a)
	case "refused":
		w.p.Refused(a.batch())
		return "remembered"
	case "wait":
		w.engineMs += a.Num("ms", 0)
		return fmt.Sprint("at ", w.engineMs)
	case "expire":
		return w.expire()
	case "plain": // a batch without a producer id
		w.end += a.Num("count", 1)
		return w.show()
	case "show":
		return w.show()
	case "restore":
		w.restore()
		return w.show()
	}
	panic("unknown command " + command)
}

func name(code int16) string {
	return strings.TrimPrefix(kerr.ErrorForCode(code).(*kerr.Error).Message, "")
}

func (w *world) batch(a *args) string {
	b := a.batch()
	o := w.p.Check(b)
	switch {
	case o.Code != 0:
		return name(o.Code)
	case o.Duplicate:
		return fmt.Sprintf("duplicate of offset %d", o.BaseOffset)
	}
	count := int64(b.LastSequence) - int64(b.FirstSequence)
	if count < 0 {
		count += 1 << 31
	}
	base := w.end
	w.end += count + 1
	w.p.ApplyBatch(b, base, w.end-1, 1000+base, w.engineMs)
	return fmt.Sprintf("offset %d", base)
}

func (w *world) marker(a *args) string {
	m := Marker{
		ProducerID: a.Num("pid", 7), Epoch: int16(a.Num("epoch", 0)), CoordinatorEpoch: int32(a.Num("c", 1)),
		Commit: a.Has("commit"), BumpsEpoch: a.Has("v2"),
	}
	if code, _ := w.p.CheckMarker(m); code != 0 {
		return name(code)
	}
	w.p.ApplyMarker(m, w.end, 1000+w.end, w.engineMs)
	w.end++
	return fmt.Sprintf("offset %d, stable %d", w.end-1, w.stable())
}

func (w *world) stable() int64 {
	if first, ok := w.p.FirstUnstable(); ok {
		return first
	}
	return w.end
}

func (w *world) expire() string {
	var gone []string
	for {
		at, ok := w.table.NextExpiry()
		if !ok || at > w.engineMs {
			return fmt.Sprintf("forgot %v", gone)
		}
		n, _ := w.table.Oldest()
		if !w.p.Remove(n.ProducerID) {
			w.t.Fatalf("%v cannot be removed", n)
		}
		gone = append(gone, fmt.Sprint(n.ProducerID))
	}
}

func (w *world) show() string {
	var b strings.Builder
	fmt.Fprintf(&b, "end %d, stable %d", w.end, w.stable())
	for _, x := range w.p.Aborted() {
		fmt.Fprintf(&b, ", aborted %d [%d,%d) stable %d", x.ProducerID, x.FirstOffset, x.LastOffset, x.LastStable)
	}
	for e := range w.p.OpenEntries() {
		fmt.Fprintf(&b, ", open %d@%d since %d%s", e.ProducerID, e.Epoch, e.TxnFirstOffset, sequences(e))
	}
	for e := range w.table.Idle() {
		fmt.Fprintf(&b, ", idle %d@%d%s", e.ProducerID, e.Epoch, sequences(e))
	}
	return b.String()
}

func sequences(e Entry) string {
	if len(e.Batches) == 0 {
		return ""
	}
	first, last := e.Batches[0], e.Batches[len(e.Batches)-1]
	return fmt.Sprintf(" seq %d..%d in %d", record.FirstSequence(first.LastSequence, first.Delta+1), last.LastSequence, len(e.Batches))
}

// restore carries the state over into a fresh table, as a snapshot does.
func (w *world) restore() {
	table := NewTable(w.cfg)
	p := table.NewPartition(1)
	if err := p.RestoreAborted(slices.Clone(w.p.Aborted())); err != nil {
		w.t.Fatal(err)
	}
	for e := range w.p.OpenEntries() {
		if err := p.Restore(e); err != nil {
			w.t.Fatal(err)
		}
	}
	for e := range w.table.Idle() {
		if err := p.Restore(e); err != nil {
			w.t.Fatal(err)
		}
	}
	w.table, w.p = table, p
}
