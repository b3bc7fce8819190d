package txn

import (
	"fmt"
	"slices"

	"github.com/strandline-io/strandline/internal/mutant"
)

// ApplyInit applies r at nowMs (engine time, as for all of these). Like every Apply it returns an error, and has then
// changed nothing, when r cannot follow from the state: the journal is damaged, or this code is wrong. The returned
// sum depends on what the id's state has become.
func (c *Coordinator) ApplyInit(r Init, nowMs int64) (sum uint64, err error) {
	if r.ID == "" || r.ProducerID < 0 || r.Epoch < 0 || r.TimeoutMs <= 0 {
		return 0, fmt.Errorf("transactional id %q cannot get producer id %d, epoch %d, timeout %d ms", r.ID, r.ProducerID, r.Epoch, r.TimeoutMs)
	}
	t := c.byID[r.ID]
	if t == nil {
		t = &transaction{Entry: Entry{ID: r.ID}}
		c.byID[r.ID] = t
		c.idBytes += idBytes(r.ID)
	} else {
		if err := t.check(Empty); err != nil {
			return 0, err
		}
		c.detach(t)
	}
	t.ProducerID, t.PrevProducerID, t.Epoch, t.LastEpoch = r.ProducerID, r.PrevProducerID, r.Epoch, r.LastEpoch
	if t.TimeoutMs == 0 || !mutant.On("timeout of the first producer kept") {
		t.TimeoutMs = r.TimeoutMs
	}
	t.State, t.StartMs, t.UpdatedMs = Empty, None, nowMs
	t.spoken = connections{} // the epoch tells who is late; the new producer may have connected first
	c.attach(t)
	return t.sum(), nil
}

// ApplyAdd applies r. Partitions and groups that are there already are passed over.
func (c *Coordinator) ApplyAdd(r Add, nowMs int64) (sum uint64, err error) {
	t := c.byID[r.ID]
	if t == nil {
		return 0, fmt.Errorf("partitions are added to transactional id %q, which is unknown", r.ID)
	}
	if err := t.check(Ongoing); err != nil {
		return 0, err
	}
	if t.State != Ongoing || mutant.On("every partition restarts the timeout") {
		c.detach(t)
		t.State, t.StartMs = Ongoing, nowMs
		c.attach(t)
	}
	t.UpdatedMs = nowMs
	c.openBytes -= openBytes(t.Partitions, t.Groups)
	t.join(r.Partitions)
	for _, g := range r.Groups {
		if !slices.Contains(t.Groups, g) {
			t.Groups = append(t.Groups, g)
		}
	}
	c.openBytes += openBytes(t.Partitions, t.Groups)
	return t.sum(), nil
}

// fewPartitions is up to how many are put in their places one by one.
const fewPartitions = 8

// join adds partitions and keeps all of them in order. A Produce joins its partitions one by one, tens of thousands in a row:
// sorting them all each time would hold up everybody.
func (t *transaction) join(partitions []uint32) {
	if len(partitions) > fewPartitions {
		t.Partitions = append(t.Partitions, partitions...)
		slices.Sort(t.Partitions)
		t.Partitions = slices.Compact(t.Partitions)
		return
	}
	for _, p := range partitions {
		if at, found := slices.BinarySearch(t.Partitions, p); !found {
			t.Partitions = slices.Insert(t.Partitions, at, p)
		}
	}
}

// ApplyEnd applies r: the id passes through the states that it names and rests in the last.
func (c *Coordinator) ApplyEnd(r End, nowMs int64) (sum uint64, err error) {
	t := c.byID[r.ID]
	if t == nil {
		return 0, fmt.Errorf("the transaction of %q ends, which is unknown", r.ID)
	}
	if r.ProducerID < 0 || r.Epoch < 0 {
		return 0, fmt.Errorf("the transaction of %q ends with producer id %d, epoch %d", r.ID, r.ProducerID, r.Epoch)
	}
	state := t.State
	for _, next := range r.path() {
		if !next.CanFollow(state) {
			return 0, fmt.Errorf("transactional id %q cannot move from %v to %v", r.ID, state, next)
		}
		state = next
	}
	c.detach(t)
	t.ProducerID, t.PrevProducerID, t.Epoch, t.LastEpoch = r.ProducerID, r.PrevProducerID, r.Epoch, r.LastEpoch
	t.State, t.StartMs, t.UpdatedMs = state, None, nowMs
	c.openBytes -= openBytes(t.Partitions, t.Groups)
	t.Partitions, t.Groups = nil, nil
	c.attach(t)
	return t.sum(), nil
}

// path lists the states that an End passes through.
func (r End) path() []State {
	switch {
	case r.Commit:
		return []State{PrepareCommit, CompleteCommit}
	case r.Fence:
		return []State{PrepareEpochFence, PrepareAbort, CompleteAbort}
	default:
		return []State{PrepareAbort, CompleteAbort}
	}
}

// ApplyExpire applies r.
func (c *Coordinator) ApplyExpire(r Expire) error {
	t := c.byID[r.ID]
	if t == nil {
		return fmt.Errorf("transactional id %q expires, which is unknown", r.ID)
	}
	if err := t.check(Dead); err != nil {
		return err
	}
	c.detach(t)
	delete(c.byID, r.ID)
	c.idBytes -= idBytes(r.ID)
	return nil
}

func (t *transaction) check(next State) error {
	if !next.CanFollow(t.State) {
		return fmt.Errorf("transactional id %q cannot move from %v to %v", t.ID, t.State, next)
	}
	return nil
}

// sum folds the entry into a number, for comparing a replayed state with the running one.
func (t *transaction) sum() uint64 {
	const prime = 0x9E3779B97F4A7C15
	h := uint64(len(t.ID))
	for _, v := range [...]uint64{
		uint64(t.ProducerID), uint64(t.PrevProducerID), uint64(t.Epoch), uint64(t.LastEpoch), uint64(t.TimeoutMs),
		uint64(t.State), uint64(t.StartMs), uint64(t.UpdatedMs), uint64(len(t.Partitions)), uint64(len(t.Groups)),
	} {
		h = (h ^ v) * prime
		h ^= h >> 29
	}
	return h
}
