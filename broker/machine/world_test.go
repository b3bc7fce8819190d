package machine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/group"
	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/machine/txn"
	"github.com/strandline-io/strandline/broker/record"
)

// world runs a machine and checks after every step what must always hold: the units replay into a second machine of
// equal hash and equal snapshot, batches follow each other and have their CRC, views agree with both machines, and the
// stable offset never moves back (V8, V11).
type world struct {
	t       testing.TB
	cfg     Config
	m       *Machine
	shadow  *Machine
	now     Now
	op      uint64
	client  Client
	journal []Unit
	logs    map[PartitionID][][]byte // batches by partition
	views   map[PartitionID]View     // as published
	late    map[uint64]any           // replies to earlier operations
	quiet   bool                     // compare hashes only, for long runs
	hungUp  bool                     // the last operation was answered with a Hangup
	counts  Counts                   // in all
}

// otherConfig is that of the machines that replay: as tight as can be, since replay must not depend on any setting. A start with
// other settings would else find another state than the one before has left.
var otherConfig = Config{
	NodeID: 9, NoAutoCreate: true, DefaultPartitions: 1, MaxPartitionsPerTopic: 1, MaxPartitions: 1, MessageMaxBytes: 1,
	Producer: producer.Config{ExpirationMs: 1, MaxEntries: 1, MaxRefused: 1},
	Txn:      txn.Config{MaxTimeoutMs: 1, IDExpirationMs: 1, MaxIDs: 1, MaxGroupsPerTxn: 1},
	Group: group.Config{
		MinSessionTimeoutMs: 1, MaxSessionTimeoutMs: 1, InitialRebalanceDelayMs: 1, NewMemberJoinTimeoutMs: 1, MaxGroups: 1, MaxGroupSize: 1,
		MaxConsumerGroupSize: 1, MaxPendingMembers: 1, MaxGroupBytes: 1, MaxStateBytes: 1, MaxOffsetsPerGroup: 1, MaxOffsetMetadataChars: 1,
		ConsumerSessionTimeoutMs: 1, ConsumerHeartbeatMs: 1, AssignmentIntervalMs: 1, InlineAssignment: 1, OffsetsRetentionMs: 1, OffsetsCheckMs: 1,
		Migration: group.MigrationDisabled,
	},
}

func newWorld(t testing.TB, cfg Config) *world {
	w := &world{
		t: t, cfg: cfg, m: New(cfg), shadow: New(otherConfig), now: Now{WallMs: 1_700_000_000_000, EngineMs: 1000},
		client: Client{ID: "c", Host: "127.0.0.1", Principal: "User:ANONYMOUS"},
		logs:   map[PartitionID][][]byte{}, views: map[PartitionID]View{}, late: map[uint64]any{},
	}
	w.do(&Incarnation{Number: 1})
	return w
}

// do steps one operation and returns its reply, nil if there is none yet.
func (w *world) do(body any) any {
	w.t.Helper()
	w.op++
	op := &Op{ID: w.op, Now: w.now, Client: w.client, Body: body}
	binary.LittleEndian.PutUint64(op.Rand[:], w.op)
	var out Out
	w.m.Step(op, &out)
	w.follow(&out)
	var answer any
	for _, r := range out.Replies {
		if r.ID == w.op {
			if answer != nil {
				w.t.Fatalf("operation %d is answered twice", r.ID)
			}
			answer = r.Body
			_, w.hungUp = r.Body.(*Hangup)
		} else {
			w.late[r.ID] = r.Body
		}
		if resp, ok := r.Body.(kmsg.Response); ok {
			resp.AppendTo(nil) // must not panic
		}
	}
	return answer
}

// ask steps a request at a version.
func (w *world) ask(req kmsg.Request, version int16) any {
	w.t.Helper()
	req.SetVersion(version)
	return w.do(req)
}

// follow keeps what the step wrote and checks it.
func (w *world) follow(out *Out) {
	w.t.Helper()
	w.counts.Add(out.Counts)
	for i := range out.Units {
		w.keep(&out.Units[i], out)
	}
	for _, v := range out.Views {
		w.checkView(v)
		w.views[v.Partition] = v
	}
	for _, c := range out.Topics {
		for _, id := range c.Topic.Partitions {
			if c.Deleted {
				delete(w.views, id)
			}
		}
	}
	if got, want := w.shadow.Hash(), w.m.Hash(); got != want {
		w.t.Fatalf("operation %d: replayed machine has hash %x, the running one %x", w.op, got, want)
	}
	if !w.quiet {
		w.compare()
	}
}

func (w *world) keep(u *Unit, out *Out) {
	w.t.Helper()
	var headers [][]byte
	for _, b := range u.Batches {
		h, err := record.ParseHeader(b.Bytes)
		if err != nil || !record.CheckCRC(b.Bytes) {
			w.t.Fatalf("operation %d: batch of partition %d is damaged: %v", w.op, b.Partition, err)
		}
		next := int64(0)
		if log := w.logs[b.Partition]; len(log) > 0 {
			last, _ := record.ParseHeader(log[len(log)-1])
			next = last.NextOffset()
		}
		if h.BaseOffset != next || b.BaseOffset != next || b.LastOffset != h.LastOffset() || b.MaxTimestamp != h.MaxTimestamp {
			w.t.Fatalf("operation %d: batch of partition %d at offset %d says %+v, want offset %d", w.op, b.Partition, h.BaseOffset, b, next)
		}
		if !slices.ContainsFunc(out.Views, func(v View) bool { return v.Partition == b.Partition }) {
			w.t.Fatalf("operation %d appends to partition %d without a view", w.op, b.Partition)
		}
		w.logs[b.Partition] = append(w.logs[b.Partition], slices.Clone(b.Bytes))
		headers = append(headers, slices.Clone(b.Bytes[:record.HeaderSize]))
	}
	kept := Unit{Meta: slices.Clone(u.Meta), Batches: slices.Clone(u.Batches), MustSync: u.MustSync}
	for i := range kept.Batches {
		kept.Batches[i].Bytes = headers[i]
	}
	w.journal = append(w.journal, kept)
	if err := w.shadow.Replay(u.Meta, headers); err != nil {
		w.t.Fatalf("operation %d does not replay: %v", w.op, err)
	}
}

func (w *world) checkView(v View) {
	w.t.Helper()
	before := w.views[v.Partition]
	if v.LastStable < before.LastStable || v.HighWatermark < before.HighWatermark || v.LastStable > v.HighWatermark {
		w.t.Fatalf("operation %d: partition %d goes from stable %d of %d to %d of %d", w.op, v.Partition,
			before.LastStable, before.HighWatermark, v.LastStable, v.HighWatermark)
	}
	for len(before.Aborted) > 0 && before.Aborted[0].LastOffset < v.LogStart {
		before.Aborted = before.Aborted[1:]
	}
	for i, a := range before.Aborted {
		if v.Aborted[i] != a {
			w.t.Fatalf("operation %d: aborted transaction %d of partition %d changed from %+v to %+v", w.op, i, v.Partition, a, v.Aborted[i])
		}
	}
}

// compare looks at the two machines in full.
func (w *world) compare() {
	w.t.Helper()
	a, b := w.m.AppendSnapshot(nil), w.shadow.AppendSnapshot(nil)
	if !bytes.Equal(a, b) {
		w.t.Fatalf("operation %d: the snapshots differ\nrunning  %x\nreplayed %x", w.op, a, b)
	}
	w.checkNothingHangs()
	for _, v := range w.shadow.Views() {
		if seen, ok := w.views[v.Partition]; ok && fmt.Sprint(seen) != fmt.Sprint(v) {
			w.t.Fatalf("operation %d: partition %d was published as %+v, replay shows %+v", w.op, v.Partition, seen, v)
		} else if !ok && v.HighWatermark > 0 {
			w.t.Fatalf("operation %d: partition %d was never published, replay shows %+v", w.op, v.Partition, v)
		}
	}
	if fmt.Sprint(w.m.Topics()) != fmt.Sprint(w.shadow.Topics()) {
		w.t.Fatalf("operation %d: topics %v, replayed %v", w.op, w.m.Topics(), w.shadow.Topics())
	}
}

// checkNothingHangs looks for a transaction that is open in a partition although its coordinator will not end it there: it would
// hold the stable offset for ever (kafka-eos.md A.7, I.1).
func (w *world) checkNothingHangs() {
	w.t.Helper()
	ends := map[producer.Name]bool{}
	for e := range w.m.txns.Open() {
		for _, p := range e.Partitions {
			ends[producer.Name{Partition: p, ProducerID: e.ProducerID}] = true
		}
	}
	for id, p := range w.m.partitions {
		for e := range p.producers.OpenEntries() {
			if !ends[producer.Name{Partition: uint32(id), ProducerID: e.ProducerID}] {
				w.t.Fatalf("operation %d: the transaction of producer %d hangs in %s/%d since offset %d", w.op, e.ProducerID, p.topic, p.number, e.TxnFirstOffset)
			}
		}
	}
}

// restart goes through a snapshot and starts the next incarnation.
func (w *world) restart() {
	w.t.Helper()
	snapshot := w.m.AppendSnapshot([]byte("head"))[4:]
	hash := w.m.Hash()
	for _, target := range []**Machine{&w.m, &w.shadow} {
		cfg := w.cfg
		if target == &w.shadow {
			cfg = otherConfig
		}
		m, err := Restore(cfg, snapshot)
		if err != nil {
			w.t.Fatal(err)
		}
		if again := m.AppendSnapshot(nil); !bytes.Equal(again, snapshot) || m.Hash() != hash {
			w.t.Fatalf("a restored machine of hash %x gives another snapshot than the one of %x", m.Hash(), hash)
		}
		*target = m
	}
	w.do(&Incarnation{Number: uint32(w.m.LeaderEpoch()) + 1})
}

// tick lets time pass and everything due happen.
func (w *world) tick(ms int64) {
	w.t.Helper()
	w.now.EngineMs += ms
	w.now.WallMs += ms
	for range 1000 {
		due, ok := w.m.NextTimer()
		if !ok || due > w.now.EngineMs {
			return
		}
		w.do(&Tick{})
	}
	w.t.Fatalf("ticks do not end at %d", w.now.EngineMs)
}

func (w *world) topic(name string, partitions int32) *Topic {
	w.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, 1
	req.Topics = append(req.Topics, rt)
	resp := w.ask(req, 7).(*kmsg.CreateTopicsResponse)
	if resp.Topics[0].ErrorCode != 0 {
		w.t.Fatalf("topic %s: %s", name, *resp.Topics[0].ErrorMessage)
	}
	return w.m.topics[name].Topic
}

// data describes a batch for one partition.
type data struct {
	topic         string
	partition     int32
	values        []string
	producerID    int64
	epoch         int16
	seq           int32
	transactional bool
}

func (d data) build(w *world) ProducePartition {
	b := record.NewBuilder()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.Transactional = d.producerID, d.epoch, d.seq, d.transactional
	for _, v := range d.values {
		b.Add(w.now.WallMs, nil, []byte(v))
	}
	raw := b.Append(nil)
	h, err := record.ParseHeader(raw)
	if err != nil {
		w.t.Fatal(err)
	}
	p := ProducePartition{Topic: d.topic, Partition: d.partition, Batch: raw, Header: h}
	if t := w.m.topics[d.topic]; t != nil {
		p.SettingsVersion = t.SettingsVersion
	}
	return p
}

func plain(topic string, partition int32, values ...string) data {
	return data{topic: topic, partition: partition, values: values, producerID: -1, epoch: -1, seq: -1}
}

// produce sends batches in one request.
func (w *world) produce(version int16, id *string, all ...data) []ProducePartitionReply {
	w.t.Helper()
	p := &Produce{Version: version, Acks: -1, TransactionalID: id}
	for _, d := range all {
		p.Partitions = append(p.Partitions, d.build(w))
	}
	return w.do(p).(*ProduceReply).Partitions
}

// readCommitted reads a partition as a read_committed consumer does: up to the stable offset, without control batches
// and without what the aborted list names (kafka-eos.md C.5).
func (w *world) readCommitted(id PartitionID) []string {
	v := w.views[id]
	aborted := slices.Clone(v.Aborted)
	slices.SortFunc(aborted, func(a, b producer.Aborted) int { return int(a.FirstOffset - b.FirstOffset) })
	out := map[int64]bool{}
	values := []string{}
	for _, raw := range w.logs[id] {
		h, _ := record.ParseHeader(raw)
		if h.BaseOffset >= v.LastStable {
			break
		}
		for len(aborted) > 0 && aborted[0].FirstOffset <= h.LastOffset() {
			out[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		if h.Control() {
			if marker, err := record.ParseMarker(raw); err != nil {
				w.t.Fatal(err)
			} else if !marker.Commit {
				delete(out, h.ProducerID)
			}
			continue
		}
		if h.Transactional() && out[h.ProducerID] {
			continue
		}
		it := record.Records(raw[record.HeaderSize:], h.RecordCount)
		for r := (record.Record{}); it.Next(&r); {
			values = append(values, string(r.Value))
		}
	}
	return values
}

// read names a partition t/0.
func (w *world) read(t string, n int32) string {
	return strings.Join(w.readCommitted(w.m.topics[t].Partitions[n]), " ")
}
