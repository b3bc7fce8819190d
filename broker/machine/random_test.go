package machine

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/machine/txn"
	"github.com/strandline-io/strandline/broker/record"
)

var oneSeed = flag.Uint64("seed", 0, "run TestRandom with this seed only")

// TestRandom runs random operations over small sizes. After each, world compares the running machine with one that
// replayed it; at the end everything is replayed once more, from the beginning and from a snapshot on, and what a
// read_committed consumer sees must be what was acknowledged: all of a committed transaction, nothing of another.
func TestRandom(t *testing.T) {
	seeds := uint64(500)
	if testing.Short() || raceEnabled {
		seeds = 50
	}
	from := uint64(1)
	if *oneSeed != 0 {
		from, seeds = *oneSeed, *oneSeed
	}
	for seed := from; seed <= seeds; seed++ {
		runRandom(t, seed)
		if t.Failed() {
			t.Fatalf("go test ./broker/machine -run TestRandom -seed %d", seed)
		}
	}
}

// outcome is a transaction as the model sees it.
type outcome struct {
	id        string
	pid       int64
	epoch     int16
	ended     bool
	committed bool
}

// appended is one value that was accepted.
type appended struct {
	offset int64
	value  string
	tx     *outcome // nil for data outside of transactions
}

type random struct {
	*world
	r     *rand.Rand
	open  map[string]*outcome
	last  map[string]*outcome // ended before
	data  map[PartitionID][]appended
	given map[string][]txn.Producer // what InitProducerId answered, oldest first
	plain []int64                   // producer ids without transactions
	next  map[string]int32          // sequence by producer id, epoch and partition
	count int
	// a snapshot and the number of units before it
	snapshot []byte
	covered  int
}

var randomConfig = Config{
	Producer: producer.Config{MaxEntries: 7, ExpirationMs: 50_000, MaxRefused: 3},
	Txn:      txn.Config{MaxIDs: 3, IDExpirationMs: 90_000, MaxTimeoutMs: 30_000, MaxGroupsPerTxn: 2, MaxOpenBytes: 110},
}

func runRandom(t *testing.T, seed uint64) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("seed %d: %v", seed, p)
			panic(p)
		}
	}()
	w := &random{
		world: newWorld(t, randomConfig), r: rand.New(rand.NewPCG(seed, 1)),
		open: map[string]*outcome{}, last: map[string]*outcome{}, data: map[PartitionID][]appended{},
		given: map[string][]txn.Producer{}, next: map[string]int32{},
	}
	w.quiet = true
	for step := range 150 {
		w.random()
		w.settle("", false)
		if step%20 == 0 {
			w.compare()
			w.checkOpen()
			w.checkReaders()
		}
		if w.r.IntN(70) == 0 {
			w.restart()
			w.snapshot, w.covered = w.m.AppendSnapshot(nil), len(w.journal)
		}
	}
	w.tick(40_000)
	w.settle("", false)
	w.compare()
	w.checkOpen()
	w.checkReaders()
	w.checkEnded()
	w.checkRecovery()
}

func (w *random) pick(all ...string) string { return all[w.r.IntN(len(all))] }

// random takes one step of any kind.
func (w *random) random() {
	switch w.r.IntN(20) {
	case 0:
		w.randomTopics()
	case 1:
		w.tick(w.r.Int64N(8000))
	case 2:
		w.randomShelved()
	case 3, 4, 5:
		w.randomInit()
	case 6, 7:
		w.randomAdd()
	case 8:
		w.randomOffsets()
	case 9, 10, 11:
		w.randomEnd()
	case 12:
		w.randomGroup()
	default:
		w.randomProduce()
	}
}

func (w *random) randomTopics() {
	name := w.pick("a", "b", "c")
	switch w.r.IntN(4) {
	case 0:
		for _, id := range partitionsOf(w.m, name) {
			delete(w.data, id)
		}
		w.run("delete " + name)
	case 1:
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: name, Count: 1 + w.r.Int32N(4)}}
		w.ask(req, 3)
	default:
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		w.ask(req, int16(w.r.IntN(4)))
	}
}

func partitionsOf(m *Machine, name string) []PartitionID {
	if t := m.topics[name]; t != nil {
		return t.Partitions
	}
	return nil
}

func (w *random) randomShelved() {
	var all []ShelvedLength
	for _, p := range w.m.sortedPartitions() {
		if p.end > p.shelved.EndOffset {
			all = append(all, ShelvedLength{Partition: p.id, FileBytes: 100, EndOffset: p.shelved.EndOffset + 1 + w.r.Int64N(p.end-p.shelved.EndOffset)})
		}
	}
	all = append(all, ShelvedLength{Partition: 4_000_000, EndOffset: 1}) // deleted meanwhile
	if w.do(&Shelved{Partitions: all}) == nil {
		w.t.Fatal("no reply to Shelved")
	}
}

// producer is mostly the newest that an id was given.
func (w *random) producer(id string) txn.Producer {
	all := w.given[id]
	p := txn.Producer{ID: id, ProducerID: w.r.Int64N(5)}
	if len(all) > 0 {
		p = all[len(all)-1]
		if w.r.IntN(8) == 0 {
			p = all[w.r.IntN(len(all))]
		}
	}
	if w.r.IntN(20) == 0 {
		p.Epoch += int16(w.r.IntN(3)) - 1
	}
	return p
}

func (w *random) randomInit() {
	id := w.pick("x", "y", "z", "q")
	if id == "q" && w.r.IntN(2) == 0 {
		var pid int64
		if n, _ := fmt.Sscanf(w.run("init plain"), "pid=%d", &pid); n == 1 {
			w.plain = append(w.plain, pid)
		}
		return
	}
	command := fmt.Sprintf("init id=%s v=%d timeout=%d", id, w.r.IntN(6), 1000+w.r.IntN(29_000))
	if w.r.IntN(3) == 0 {
		p := w.producer(id)
		command += fmt.Sprintf(" pid=%d epoch=%d", p.ProducerID, p.Epoch)
	}
	p := txn.Producer{ID: id}
	if n, _ := fmt.Sscanf(w.run(command), "pid=%d epoch=%d", &p.ProducerID, &p.Epoch); n == 2 {
		w.given[id] = append(w.given[id], p)
	}
}

func (w *random) randomAdd() {
	p := w.producer(w.pick("x", "y", "z"))
	w.run(fmt.Sprintf("add id=%s v=%d pid=%d epoch=%d %s/%d %s/%d", p.ID, w.r.IntN(6), p.ProducerID, p.Epoch,
		w.pick("a", "b"), w.r.IntN(3), w.pick("a", "b", "c"), w.r.IntN(2)))
	w.track(p)
}

func (w *random) randomOffsets() {
	p := w.producer(w.pick("x", "y", "z"))
	group := w.pick("g", "h", "i")
	if w.r.IntN(3) == 0 {
		w.run(fmt.Sprintf("offsets id=%s v=%d pid=%d epoch=%d %s", p.ID, w.r.IntN(5), p.ProducerID, p.Epoch, group))
	} else {
		w.run(fmt.Sprintf("txncommit id=%s v=%d pid=%d epoch=%d group=%s a/%d=%d", p.ID, w.r.IntN(6), p.ProducerID, p.Epoch, group, w.r.IntN(2), w.r.IntN(100)))
	}
	w.track(p)
}

// track notices that a transaction was opened.
func (w *random) track(p txn.Producer) *outcome {
	if e, ok := w.m.txns.Get(p.ID); !ok || e.State != txn.Ongoing {
		return nil
	}
	if w.open[p.ID] == nil {
		w.open[p.ID] = &outcome{id: p.ID, pid: p.ProducerID, epoch: p.Epoch}
	}
	return w.open[p.ID]
}

func (w *random) randomEnd() {
	p := w.producer(w.pick("x", "y", "z"))
	commit := w.r.IntN(3) > 0
	word := ""
	if commit {
		word = "commit"
	}
	version := w.r.IntN(6)
	before := w.open[p.ID]
	answer := w.run(fmt.Sprintf("end id=%s v=%d pid=%d epoch=%d %s", p.ID, version, p.ProducerID, p.Epoch, word))
	next := txn.Producer{ID: p.ID}
	n, _ := fmt.Sscanf(answer, "pid=%d epoch=%d", &next.ProducerID, &next.Epoch)
	success := n == 2 || answer == "ok"
	if n == 2 {
		w.given[p.ID] = append(w.given[p.ID], next)
	}
	w.settle(p.ID, success && commit)
	// An acknowledged end says how the producer's last transaction ended. An empty abort is one as well.
	if last := w.last[p.ID]; success && commit && (last == nil || !last.committed) {
		w.t.Errorf("commit of %+v was acknowledged, its last transaction is %+v, before %+v", p, last, before)
	}
}

// settle closes what is not open any more: committed if this step acknowledged that, else aborted.
func (w *random) settle(id string, committed bool) {
	for _, name := range []string{"x", "y", "z"} {
		tx := w.open[name]
		e, ok := w.m.txns.Get(name)
		if tx == nil || ok && e.State == txn.Ongoing && e.ProducerID == tx.pid && e.Epoch == tx.epoch {
			continue
		}
		tx.ended, tx.committed = true, committed && name == id
		w.last[name], w.open[name] = tx, nil
	}
}

func (w *random) randomGroup() {
	if w.r.IntN(2) == 0 {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = w.pick("g", "h"), "consumer", 6000, 6000
		req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
		w.ask(req, int16(w.r.IntN(10)))
		return
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = w.pick("g", "h"), -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = "a"
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = w.r.Int64N(100)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	w.ask(req, 9)
}

func (w *random) randomProduce() {
	version := int16(3 + w.r.IntN(11))
	var id *string
	p := txn.Producer{ProducerID: -1, Epoch: -1}
	switch kind := w.r.IntN(6); {
	case kind == 0:
	case kind == 1 && len(w.plain) > 0:
		p = txn.Producer{ProducerID: w.plain[w.r.IntN(len(w.plain))], Epoch: int16(w.r.IntN(2))}
	default:
		name := w.pick("x", "y", "z")
		id, p = &name, w.producer(name)
	}
	var all []data
	for range 1 + w.r.IntN(3) {
		d := data{topic: w.pick("a", "b", "c"), partition: w.r.Int32N(3), producerID: p.ProducerID, epoch: p.Epoch, seq: -1, transactional: id != nil}
		for range 1 + w.r.IntN(3) {
			w.count++
			d.values = append(d.values, fmt.Sprint("v", w.count))
		}
		if p.ProducerID >= 0 {
			d.seq = max(0, w.next[w.key(d)]-int32(w.r.IntN(8)/6))
		}
		all = append(all, d)
	}
	replies := w.produce(version, id, all...)
	for i, r := range replies {
		w.accepted(all[i], r, id)
	}
}

func (w *random) key(d data) string {
	return fmt.Sprintf("%d/%d/%s/%d", d.producerID, d.epoch, d.topic, d.partition)
}

// accepted takes over what a reply says is in the log.
func (w *random) accepted(d data, r ProducePartitionReply, id *string) {
	if r.Code != 0 || r.Stale {
		return
	}
	p := w.m.topics[d.topic].partitions[d.partition]
	w.next[w.key(d)] = d.seq + int32(len(d.values))
	if n := len(w.data[p.id]); n > 0 && r.BaseOffset <= w.data[p.id][n-1].offset {
		// A duplicate: what was written first counts, whatever the values are now.
		if !slices.ContainsFunc(w.data[p.id], func(a appended) bool { return a.offset == r.BaseOffset }) {
			w.t.Errorf("%+v is answered as a duplicate of offset %d, where no batch begins", d, r.BaseOffset)
		}
		return
	}
	var tx *outcome
	if id != nil {
		if tx = w.track(txn.Producer{ID: *id, ProducerID: d.producerID, Epoch: d.epoch}); tx == nil || tx.pid != d.producerID || tx.epoch != d.epoch {
			w.t.Errorf("%+v went in outside of its transaction %+v", d, tx)
		}
	}
	for i, v := range d.values {
		w.data[p.id] = append(w.data[p.id], appended{offset: r.BaseOffset + int64(i), value: v, tx: tx})
	}
}

// checkOpen: every transaction that is open in a partition, and every pending offset, is one that the coordinator will
// end, and no partition is stable beyond it.
func (w *random) checkOpen() {
	known, ids := map[string]bool{}, map[int64]bool{}
	for e := range w.m.txns.Open() {
		ids[e.ProducerID] = true
		for _, id := range e.Partitions {
			known[fmt.Sprintf("%d@%d in %d", e.ProducerID, e.Epoch, id)] = true
		}
	}
	for _, p := range w.m.partitions {
		for e := range p.producers.OpenEntries() {
			if name := fmt.Sprintf("%d@%d in %d", e.ProducerID, e.Epoch, p.id); !known[name] {
				w.t.Errorf("the transaction of %s hangs: no coordinator knows it", name)
			}
		}
	}
	for _, all := range w.given {
		for _, p := range all {
			if w.m.groups.HasPending(p.ProducerID) && !ids[p.ProducerID] {
				w.t.Errorf("offsets of producer %d hang: no coordinator knows its transaction", p.ProducerID)
			}
		}
	}
}

// checkReaders: a read_committed consumer sees what was acknowledged, in order, up to the first open transaction, and
// nothing else.
func (w *random) checkReaders() {
	for id := range w.views {
		want := []string{}
		for _, a := range w.data[id] {
			if a.tx != nil && !a.tx.ended {
				break
			}
			if a.tx == nil || a.tx.committed {
				want = append(want, a.value)
			}
		}
		if got := w.readCommitted(id); !slices.Equal(got, want) {
			w.t.Errorf("a read_committed consumer of partition %d sees %v, acknowledged were %v", id, got, want)
		}
	}
}

// checkEnded: when every transaction has had its time, nothing stays behind.
func (w *random) checkEnded() {
	for _, p := range w.m.partitions {
		if p.lastStable() != p.end {
			w.t.Errorf("partition %d is stable up to %d of %d though nothing is open", p.id, p.lastStable(), p.end)
		}
	}
	for name, tx := range w.open {
		if tx != nil {
			w.t.Errorf("transaction of %s did not end: %+v", name, tx)
		}
	}
}

// checkRecovery replays all, and the tail on top of the last snapshot.
func (w *random) checkRecovery() {
	whole := New(randomConfig)
	w.replay(whole, w.journal)
	if w.snapshot == nil {
		return
	}
	tail, err := Restore(Config{}, w.snapshot)
	if err != nil {
		w.t.Fatal(err)
	}
	w.replay(tail, w.journal[w.covered:])
}

func (w *random) replay(m *Machine, units []Unit) {
	for i, u := range units {
		var headers [][]byte
		for _, b := range u.Batches {
			headers = append(headers, b.Bytes[:record.HeaderSize])
		}
		if err := m.Replay(u.Meta, headers); err != nil {
			w.t.Fatalf("unit %d: %v", i, err)
		}
	}
	if m.Hash() != w.m.Hash() || !bytes.Equal(m.AppendSnapshot(nil), w.m.AppendSnapshot(nil)) {
		w.t.Errorf("replayed machine has hash %x, the running one %x, or the snapshots differ", m.Hash(), w.m.Hash())
	}
	if fmt.Sprint(m.Views(), m.Topics(), m.ShelvedLengths(), m.LastNow()) != fmt.Sprint(w.m.Views(), w.m.Topics(), w.m.ShelvedLengths(), w.m.LastNow()) {
		w.t.Errorf("replayed machine shows other views or topics")
	}
}
