package world

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// history is what clients did and saw. It judges every value that a reader sees, and the whole at the end.
type history struct {
	values  []*value            // by id - 1
	txns    []*transaction      // in order of their beginning
	cells   map[cell]uint64     // value id that was seen there
	pids    map[int64]string    // who was given a fresh producer id
	newest  map[string]*claim   // the newest acknowledged owner of a transactional id
	lowest  map[string]int64    // committed offset that was acknowledged, by group and partition
	late    map[string]int64    // and the lowest one of which an attempt may still be under way
	reading map[string][]uint64 // what a reader has seen so far, by reader
	// generations are those in force, by group; consumed is what any member of the consumers' group has read.
	generations map[string]*claim
	consumed    map[uint64]bool
	identities  map[identity]string // whose each is
	ends        map[string]int64    // where a partition ends at least, by its name: up to there all was acknowledged
	starts      map[string]int64    // where a log begins at least, as was acknowledged
}

type cell struct {
	partition string
	offset    int64
}

// value is one record that somebody wrote.
type value struct {
	id          uint64
	partition   string
	producer    string // instance
	tx          *transaction
	acked       bool
	at          int64  // and where it is said to be
	of          uint64 // input that it was made of, or 0
	offset      int64  // where it was seen, -1 before
	place       string // and in which life of its topic
	timestampMs int64  // as it was seen
}

// transaction is a client's view of one.
type transaction struct {
	name      string
	tried     bool // a commit was asked for
	committed bool // and acknowledged
	aborted   bool // surely not committed
	torn      bool // power was lost meanwhile where replies leave before the sync
	values    []*value
}

// identity is what the broker knows a transactional producer by.
type identity struct {
	pid   int64
	epoch int16
}

// owns notes that the broker gave an identity to an instance of a producer: once and for all, whatever a power loss forgets, else
// one's EndTxn ends what another has written.
func (w *World) owns(instance string, id identity) {
	h := w.history
	if owner, ok := h.identities[id]; ok {
		w.fail("fenced: %s is given producer id %d epoch %d, which %s has", instance, id.pid, id.epoch, owner)
	}
	h.identities[id] = instance
}

// claim says since when a transactional id has an owner.
type claim struct {
	rank    int
	sinceUs int64
}

func newHistory() *history {
	return &history{
		cells: make(map[cell]uint64), pids: make(map[int64]string), newest: make(map[string]*claim),
		lowest: make(map[string]int64), late: make(map[string]int64), reading: make(map[string][]uint64),
		generations: make(map[string]*claim), consumed: make(map[uint64]bool),
		identities: make(map[identity]string), ends: make(map[string]int64), starts: make(map[string]int64),
	}
}

func partitionName(topic string, index int32) string { return fmt.Sprintf("%s/%d", topic, index) }

// write notes a value before it is sent and returns its bytes.
func (w *World) write(partition, producer string, tx *transaction, of uint64) (*value, []byte) {
	h := w.history
	v := &value{id: uint64(len(h.values) + 1), partition: partition, producer: producer, tx: tx, of: of, offset: -1}
	h.values = append(h.values, v)
	if tx != nil {
		tx.values = append(tx.values, v)
	}
	size := 8 + w.IntN(200)
	if w.chance(5) {
		size += w.IntN(6000)
	}
	b := make([]byte, size)
	binary.BigEndian.PutUint64(b, v.id)
	return v, b
}

func (w *World) beginTransaction(name string) *transaction {
	tx := &transaction{name: name}
	w.history.txns = append(w.history.txns, tx)
	return tx
}

// saw judges a value that a reader got.
func (w *World) saw(reader, partition string, offset int64, committedOnly bool, b []byte) *value {
	h := w.history
	w.stats.Read++
	id := binary.BigEndian.Uint64(b)
	if id == 0 || id > uint64(len(h.values)) {
		w.fail("nothing invented: %s: %s at %d holds a value that nobody wrote", reader, partition, offset)
	}
	v := h.values[id-1]
	at := cell{partition, offset}
	if old, ok := h.cells[at]; ok && old != id {
		w.fail("one value at an offset: %s: %s at %d holds value %d, it was %d before", reader, partition, offset, id, old)
	}
	h.cells[at] = id
	if !v.mayBeIn(partition) || v.offset >= 0 && (v.place == partition && v.offset != offset || v.place != partition && !v.byName()) {
		w.fail("once: %s: value %d of %s, seen in %s at %d, is in %s at %d as well", reader, id, v.partition, v.place, v.offset, partition, offset)
	}
	v.offset, v.place = offset, partition
	if tx := v.tx; committedOnly && tx != nil && (!tx.tried || tx.aborted) {
		w.fail("nothing aborted: %s: %s at %d shows value %d of transaction %s, which is not committed (asked for: %t)", reader, partition, offset, id, tx.name, tx.tried)
	}
	return v
}

// mayBeIn reports whether the value was sent to that partition. What is sent by name may get into any life of a topic, and
// into several, if its producer did not hear that it was in one and sent it again.
func (v *value) mayBeIn(partition string) bool {
	if v.partition == partition {
		return true
	}
	_, index, _ := strings.Cut(v.partition, "/")
	return v.byName() && strings.HasPrefix(partition, volatileTopic+"#") && strings.HasSuffix(partition, "/"+index)
}

// byName reports whether the value was sent to the topic that is deleted, whichever life it has.
func (v *value) byName() bool { return strings.HasPrefix(v.partition, volatileTopic+"/") }

// mayVanish reports whether the value's topic is one that gets deleted, or records of it.
func (v *value) mayVanish() bool {
	return strings.HasPrefix(v.partition, volatileTopic) || strings.HasPrefix(v.partition, trimmedTopic)
}

// check judges the whole: final is what a read_committed reader gets in the end, by partition.
func (w *World) check(final map[string][]*value, partitions []string) {
	h := w.history
	visible := make(map[uint64]bool)
	for _, p := range partitions {
		last := make(map[string]uint64)
		for _, v := range final[p] {
			if visible[v.id] {
				w.fail("once: value %d is visible twice in %s", v.id, p)
			}
			visible[v.id] = true
			// Without sequences nothing holds a batch back while one in front of it is judged again under new settings.
			reordered := strings.HasPrefix(v.producer, "plain@") && w.alteredUs > 0
			if v.id < last[v.producer] && !reordered {
				w.fail("order: %s shows value %d of %s behind %d, which was sent later", p, v.id, v.producer, last[v.producer])
			}
			last[v.producer] = max(last[v.producer], v.id)
		}
	}
	for _, v := range h.values {
		if v.tx == nil && v.acked && !visible[v.id] && !v.mayVanish() && !w.mode.lossy {
			w.fail("acknowledged: value %d of %s in %s was acknowledged and is not there", v.id, v.producer, v.partition)
		}
	}
	for _, tx := range h.txns {
		shown, all := 0, 0
		for _, v := range tx.values {
			if v.mayVanish() {
				continue
			}
			if all++; visible[v.id] {
				shown++
			}
		}
		switch {
		case tx.committed && shown != all && !w.mode.lossy:
			w.fail("acknowledged: transaction %s was committed with %d values, %d are visible", tx.name, all, shown)
		case (tx.aborted || !tx.tried) && shown != 0:
			w.fail("nothing aborted: transaction %s was not committed, %d values are visible", tx.name, shown)
		case shown != 0 && shown != all && !tx.torn:
			w.fail("all or nothing: transaction %s has %d values, of which %d are visible", tx.name, all, shown)
		}
	}
	w.checkProcessed(final)
}

// checkProcessed: every committed input has exactly one committed output.
func (w *World) checkProcessed(final map[string][]*value) {
	if !w.processing {
		return
	}
	outputs := make(map[uint64]int)
	for i := range int32(inputPartitions) {
		for _, v := range final[partitionName("out", i)] {
			outputs[v.of]++
		}
	}
	for i := range int32(inputPartitions) {
		for _, v := range final[partitionName("in", i)] {
			if outputs[v.id] != 1 {
				w.fail("exactly once: input %d was processed %d times", v.id, outputs[v.id])
			}
			delete(outputs, v.id)
		}
	}
	if len(outputs) > 0 {
		w.fail("exactly once: %d outputs have no committed input", len(outputs))
	}
}

// checkReader: a reader that went along has seen what a late one sees, no more, no less, in this order.
func (w *World) checkReader(reader string, seen []uint64, final []*value) {
	want := make([]uint64, len(final))
	for i, v := range final {
		want[i] = v.id
	}
	if !slices.Equal(seen, want) {
		w.fail("nothing skipped: %s has seen %d values, in the end there are %d: %v, %v", reader, len(seen), len(want), seen, want)
	}
}
