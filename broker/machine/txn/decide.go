package txn

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline-io/strandline/internal/mutant"
)

// InitRequest asks for a producer id and epoch under a transactional id. A client that already had some names them
// (KIP-360), else both are None.
type InitRequest struct {
	Producer
	TimeoutMs int32
}

// InitPlan is what an InitRequest leads to, in this order.
type InitPlan struct {
	Forget []Expire // other ids that make room
	Abort  *Ending  // the transaction that the id's former producer left open
	Init   Init     // also the answer
}

// Init decides about InitProducerId (kafka-eos.md B.3) for an id that is not null. newID is called when a producer id
// is needed. Over an open transaction the answer is final where Apache Kafka asks to come back: the abort and a second
// bump are one plan, so that the former producer's EndTxn is neither current nor a retry.
func (c *Coordinator) Init(r InitRequest, newID func() int64) (InitPlan, *Refusal) {
	given := r.ProducerID != None
	switch {
	case given != (r.Epoch != None):
		return InitPlan{}, refuse(kerr.InvalidRequest, "producer id or epoch alone", r.ProducerID, int64(r.Epoch))
	case r.ID == "":
		return InitPlan{}, refuse(kerr.InvalidRequest, "length of the transactional id", 0, 1)
	case r.TimeoutMs <= 0 || r.TimeoutMs > c.cfg.MaxTimeoutMs:
		return InitPlan{}, refuse(kerr.InvalidTransactionTimeout, "transaction timeout in ms", int64(r.TimeoutMs), int64(c.cfg.MaxTimeoutMs))
	}
	t := c.byID[r.ID]
	if t == nil {
		return c.initNew(r, newID)
	}
	if given {
		if refusal := t.checkGiven(r.Producer); refusal != nil {
			return InitPlan{}, refusal
		}
	}
	if code := rules[t.State].add; code != nil {
		return InitPlan{}, refuse(code, "transaction state", int64(t.State), int64(Empty))
	}
	var plan InitPlan
	e, last := t.Entry, int16(None)
	if given && !(t.State == Ongoing && mutant.On("lost answer over an open transaction not given again")) {
		last = r.Epoch // the answer may be lost, over an open transaction too: it will come again
	}
	if e.State == Ongoing {
		// A new producer takes over, or the owner gives up what it began. The abort leaves the entry as a timeout would, but
		// nobody is given what it leaves.
		ending := t.end(EndRequest{BumpsEpoch: true}, true, exhausted(t.Epoch), newID)
		plan.Abort = &ending
		e.ProducerID, e.PrevProducerID, e.Epoch = ending.Record.ProducerID, ending.Record.PrevProducerID, ending.Record.Epoch
		given = false
	}
	plan.Init = Init{ID: r.ID, ProducerID: e.ProducerID, PrevProducerID: e.PrevProducerID, Epoch: e.Epoch, LastEpoch: last, TimeoutMs: r.TimeoutMs}
	if given && (r.ProducerID != e.ProducerID || r.Epoch != e.Epoch) && !mutant.On("retry of InitProducerId bumps again") {
		return plan, nil // checkGiven let only a retry of a lost answer pass: the same answer again
	}
	if mutant.On("no epoch bump") && plan.Abort == nil || mutant.On("one bump over an open transaction") && plan.Abort != nil {
		return plan, nil
	}
	if c.spent(e.ProducerID, e.Epoch) {
		plan.Init.PrevProducerID, plan.Init.ProducerID, plan.Init.Epoch = e.ProducerID, newID(), 0
	} else {
		plan.Init.Epoch++
	}
	return plan, nil
}

// initNew answers for an id that is unknown, whatever producer id and epoch the client had: the id may have expired.
func (c *Coordinator) initNew(r InitRequest, newID func() int64) (InitPlan, *Refusal) {
	var plan InitPlan
	count, bytes := len(c.byID)+1, c.idBytes+idBytes(r.ID)
	for t := c.idle.first; count > c.cfg.MaxIDs || bytes > c.cfg.MaxIDBytes; t = t.next {
		switch {
		case t == nil && count > c.cfg.MaxIDs:
			return InitPlan{}, refuse(kerr.CoordinatorNotAvailable, "transactional ids with open transactions, at most", int64(count), int64(c.cfg.MaxIDs))
		case t == nil:
			return InitPlan{}, refuse(kerr.CoordinatorNotAvailable, "bytes of transactional ids with open transactions, at most", bytes, c.cfg.MaxIDBytes)
		}
		plan.Forget = append(plan.Forget, Expire{ID: t.ID})
		count, bytes = count-1, bytes-idBytes(t.ID)
	}
	plan.Init = Init{ID: r.ID, ProducerID: newID(), PrevProducerID: None, Epoch: 0, LastEpoch: None, TimeoutMs: r.TimeoutMs}
	return plan, nil
}

// checkGiven passes a client that names its producer id and epoch if it is the current producer, or the one that did
// not hear of its bump or rotation.
func (t *transaction) checkGiven(p Producer) *Refusal {
	if mutant.On("any producer may take over by name") {
		return nil
	}
	// In an open transaction the answer must have arrived: what comes again is late, and must not abort it.
	// A last epoch that is not below the present one is the former producer id's.
	repeats := p.Epoch == t.LastEpoch && (t.State != Ongoing || mutant.On("late InitProducerId aborts"))
	switch {
	case p.ProducerID != t.ProducerID && (p.ProducerID != t.PrevProducerID || t.LastEpoch < t.Epoch || !repeats):
		return refuse(kerr.ProducerFenced, "producer id", p.ProducerID, t.ProducerID)
	case p.ProducerID == t.ProducerID && p.Epoch != t.Epoch && !repeats:
		return refuse(kerr.ProducerFenced, "producer epoch", int64(p.Epoch), int64(t.Epoch))
	}
	return nil
}

// member finds the transaction that a producer speaks for (the first rows of kafka-eos.md B.4).
func (c *Coordinator) member(p Producer) (*transaction, *Refusal) {
	if p.ID == "" {
		return nil, refuse(kerr.InvalidRequest, "length of the transactional id", 0, 1)
	}
	t := c.byID[p.ID]
	switch {
	case t == nil:
		return nil, refuse(kerr.InvalidProducerIDMapping, "producer id of an unknown transactional id", p.ProducerID, None)
	case t.ProducerID != p.ProducerID && !mutant.On("another producer id may add"):
		return nil, refuse(kerr.InvalidProducerIDMapping, "producer id", p.ProducerID, t.ProducerID)
	case t.Epoch != p.Epoch && !mutant.On("fenced id may add partitions"):
		return nil, refuse(kerr.ProducerFenced, "producer epoch", int64(p.Epoch), int64(t.Epoch))
	case rules[t.State].add != nil:
		return nil, refuse(rules[t.State].add, "transaction state", int64(t.State), int64(Ongoing))
	}
	return t, nil
}

// AddRequest names what joins, or must already be in, the open transaction.
type AddRequest struct {
	Producer
	Partitions []uint32
	Groups     []string
}

// Add decides about AddPartitionsToTxn, AddOffsetsToTxn, and the implicit adding of transaction version 2
// (kafka-eos.md B.4, B.5). A nil record without a refusal means that everything is in already.
func (c *Coordinator) Add(r AddRequest) (*Add, *Refusal) {
	t, refusal := c.member(r.Producer)
	if refusal != nil {
		return nil, refusal
	}
	add := &Add{ID: r.ID}
	for _, p := range r.Partitions {
		if !t.has(p) {
			add.Partitions = append(add.Partitions, p)
		}
	}
	for _, g := range r.Groups {
		if !slices.Contains(t.Groups, g) && !slices.Contains(add.Groups, g) {
			add.Groups = append(add.Groups, g)
		}
	}
	if n := len(t.Groups) + len(add.Groups); n > c.cfg.MaxGroupsPerTxn {
		return nil, refuse(kerr.PolicyViolation, "groups in one transaction, at most", int64(n), int64(c.cfg.MaxGroupsPerTxn))
	}
	if t.State == Ongoing && len(add.Partitions) == 0 && len(add.Groups) == 0 {
		return nil, nil
	}
	if n := c.openBytes + openBytes(add.Partitions, add.Groups); n > c.cfg.MaxOpenBytes {
		return nil, refuse(kerr.CoordinatorNotAvailable, "bytes of partitions and groups in open transactions, at most", n, c.cfg.MaxOpenBytes)
	}
	return add, nil
}

// Verify decides whether all that r names is in the producer's open transaction (KIP-890 part 1; kafka-eos.md A.7). If
// not, the refusal's code is TRANSACTION_ABORTABLE.
func (c *Coordinator) Verify(r AddRequest) *Refusal {
	t, refusal := c.member(r.Producer)
	if refusal != nil {
		return refusal
	}
	for _, p := range r.Partitions {
		if !t.has(p) && !mutant.On("verification finds every partition") {
			return refuse(kerr.TransactionAbortable, "partitions of the transaction without the named one", int64(len(t.Partitions)), int64(len(t.Partitions)+1))
		}
	}
	for _, g := range r.Groups {
		if !slices.Contains(t.Groups, g) && !mutant.On("verification finds every group") {
			return refuse(kerr.TransactionAbortable, "groups of the transaction without the named one", int64(len(t.Groups)), int64(len(t.Groups)+1))
		}
	}
	return nil
}

func (t *transaction) has(partition uint32) bool {
	_, found := slices.BinarySearch(t.Partitions, partition)
	return found
}

// EndRequest asks for the end of the transaction. BumpsEpoch is set for EndTxn v5: transaction version 2.
type EndRequest struct {
	Producer
	Commit     bool
	BumpsEpoch bool
}

// EndPlan is what an EndRequest leads to. A nil Ending means that an earlier attempt did it. ProducerID and Epoch are
// those for the producer's next transaction.
type EndPlan struct {
	Ending     *Ending
	ProducerID int64
	Epoch      int16
}

// End decides about EndTxn (kafka-eos.md B.7, B.8). newID is called when a producer id is needed.
func (c *Coordinator) End(r EndRequest, newID func() int64) (EndPlan, *Refusal) {
	if r.ID == "" {
		return EndPlan{}, refuse(kerr.InvalidRequest, "length of the transactional id", 0, 1)
	}
	t := c.byID[r.ID]
	if t == nil {
		return EndPlan{}, refuse(kerr.InvalidProducerIDMapping, "producer id of an unknown transactional id", r.ProducerID, None)
	}
	v, refusal := t.judgeEnd(r)
	if refusal != nil {
		return EndPlan{}, refusal
	}
	switch v {
	case endIt:
		ending := t.end(r, false, c.spent(t.ProducerID, t.Epoch), newID)
		return EndPlan{Ending: &ending, ProducerID: ending.Record.ProducerID, Epoch: ending.Record.Epoch}, nil
	case endedBefore:
		return EndPlan{ProducerID: t.ProducerID, Epoch: t.Epoch}, nil
	case refuseFenced:
		if r.ProducerID != t.ProducerID {
			return EndPlan{}, refuse(kerr.ProducerFenced, "producer id", r.ProducerID, t.ProducerID)
		}
		return EndPlan{}, refuse(kerr.ProducerFenced, "producer epoch", int64(r.Epoch), int64(t.Epoch))
	case refuseMapping:
		return EndPlan{}, refuse(kerr.InvalidProducerIDMapping, "producer id", r.ProducerID, t.ProducerID)
	case refuseConcurrent:
		return EndPlan{}, refuse(kerr.ConcurrentTransactions, "transaction state", int64(t.State), int64(Ongoing))
	default:
		return EndPlan{}, refuse(kerr.InvalidTxnState, "transaction state", int64(t.State), int64(Ongoing))
	}
}

// judgeEnd looks the answer up in the tables, after the producer id.
func (t *transaction) judgeEnd(r EndRequest) (verdict, *Refusal) {
	kind := abort
	if r.Commit {
		kind = commit
	}
	// A bump by InitProducerId is none that an EndTxn left behind: it fenced who had the epoch before, and an end that the
	// new owner reached (in version 1 it does not bump) must not let that one in again.
	ended := r.Epoch == t.LastEpoch || mutant.On("fenced producer takes part in its successor's end")
	rotated := r.BumpsEpoch && ended && !mutant.On("retry over a new producer id refused") && r.ProducerID != None && r.ProducerID == t.PrevProducerID && t.Epoch == 0
	if r.ProducerID != t.ProducerID && !rotated {
		return 0, refuse(kerr.InvalidProducerIDMapping, "producer id", r.ProducerID, t.ProducerID)
	}
	if !r.BumpsEpoch {
		if r.Epoch != t.Epoch && !mutant.On("stale epoch may end") {
			return refuseFenced, nil
		}
		if mutant.On("EndTxn says yes to the other end") && t.State != Ongoing {
			return endedBefore, nil
		}
		return endV1[t.State][kind], nil
	}
	rel := other
	switch {
	case (rotated || ended && int32(t.Epoch) == int32(r.Epoch)+1) && !mutant.On("retry of EndTxn ends the next transaction"):
		rel = retry
	case mutant.On("retry of EndTxn ends the next transaction"):
		rel = current
	case r.Epoch == t.Epoch:
		rel = current
	}
	return endV2[t.State][kind][rel], nil
}

// end works out a transaction's end. If it bumps the epoch, its markers carry the next one, and so does what follows, unless a
// spent producer id is replaced (kafka-eos.md B.17).
func (t *transaction) end(r EndRequest, fence, replace bool, newID func() int64) Ending {
	ending := Ending{
		Record: End{
			ID: t.ID, Commit: r.Commit, Fence: fence,
			ProducerID: t.ProducerID, PrevProducerID: t.PrevProducerID, Epoch: t.Epoch, LastEpoch: t.LastEpoch,
		},
		ProducerID: t.ProducerID, Epoch: t.Epoch, Bumped: r.BumpsEpoch,
		Partitions: t.Partitions,
	}
	if !r.BumpsEpoch {
		return ending
	}
	ending.Epoch = min(t.Epoch, MaxEpoch) + 1 // one who came beyond MaxEpoch can end, too
	if mutant.On("markers without the bump") {
		ending.Epoch = t.Epoch
	}
	ending.Record.LastEpoch = t.Epoch
	if replace {
		ending.Record.PrevProducerID, ending.Record.ProducerID, ending.Record.Epoch = t.ProducerID, newID(), 0
	} else {
		ending.Record.Epoch = ending.Epoch
	}
	return ending
}

// TimedOut decides about the open transaction whose time was up first, if it was up at nowMs.
func (c *Coordinator) TimedOut(nowMs int64, newID func() int64) (Ending, bool) {
	if len(c.open) == 0 || c.open[0].deadlineMs() > nowMs || mutant.On("timed-out transaction not aborted") {
		return Ending{}, false
	}
	t := c.open[0]
	return t.end(EndRequest{BumpsEpoch: !mutant.On("timeout does not fence")}, true, c.spent(t.ProducerID, t.Epoch), newID), true
}

// Expired decides about the id that was idle for the longest, if that was too long at nowMs, or if there are more ids than the
// bound allows: it is evicted then.
func (c *Coordinator) Expired(nowMs int64) (e Expire, evicted, ok bool) {
	t := c.idle.first
	if t == nil || mutant.On("ids never expire") {
		return Expire{}, false, false
	}
	if t.UpdatedMs+c.cfg.IDExpirationMs <= nowMs {
		return Expire{ID: t.ID}, false, true
	}
	evicted = len(c.byID) > c.cfg.MaxIDs
	return Expire{ID: t.ID}, evicted, evicted
}
