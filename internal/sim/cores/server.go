package cores

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/record"
)

// server is the real machine over a journal that is a list of units, of which a prefix is durable.
type server struct {
	w       *World
	machine *machine.Machine
	units   []unit
	durable int

	shadow   *machine.Machine // replays what is durable, for snapshots
	shadowAt int
	snaps    []snapshot

	incarnation   uint32
	engineStartMs int64
	startedMs     int64 // w.nowMs when this life began
	op            uint64
	out           machine.Out
	settings      map[string]uint32 // versions, by topic
	parked        map[uint64]*request
	waiting       []waiting
	views         []pendingView
	published     map[machine.PartitionID]machine.View
	newest        map[machine.PartitionID]machine.View

	// log is what the model is made of again after a crash.
	log   []logged
	model *model
	logs  map[machine.PartitionID][]appended
}

type unit struct {
	machine.Unit
	headers [][]byte
	hash    uint64 // of the machine right after it
}

type snapshot struct {
	at   int // units that it covers
	data []byte
}

// waiting is a reply that may leave once so many units are durable.
type waiting struct {
	at    int
	r     *request
	reply *reply
}

type pendingView struct {
	at   int
	view machine.View
}

// logged is one step, and the answers that it gave.
type logged struct {
	r        *request // nil is a restart
	at       int      // units after it
	wallMs   int64
	engineMs int64
	answers  []waiting
}

func newServer(w *World) *server {
	s := &server{w: w, machine: machine.New(w.config), shadow: machine.New(w.config), model: newModel(w.bounds), settings: map[string]uint32{}, logs: map[machine.PartitionID][]appended{}}
	s.boot()
	return s
}

// boot starts a life on what the machine knows.
func (s *server) boot() {
	last := s.machine.LastNow()
	s.startedMs, s.engineStartMs = s.w.nowMs, last.EngineMs+max(0, s.w.wallMs()-last.WallMs)
	s.parked, s.waiting, s.views = map[uint64]*request{}, nil, nil
	s.published, s.newest = map[machine.PartitionID]machine.View{}, map[machine.PartitionID]machine.View{}
	s.checkTopics()
	for _, v := range s.machine.Views() {
		s.published[v.Partition], s.newest[v.Partition] = v, v
	}
	s.log = append(s.log, logged{at: len(s.units)})
	s.model.restarted()
	s.incarnation++
	s.step(&request{kind: kindIncarnation, number: s.incarnation})
}

func (s *server) checkTopics() {
	topics := s.machine.Topics()
	clear(s.settings)
	for _, t := range topics {
		s.settings[t.Name] = t.SettingsVersion
		if m := s.model.topics[t.Name]; m == nil || !slices.Equal(m.parts, t.Partitions) {
			s.w.fail("model: topic %s has partitions %v, not as decided", t.Name, t.Partitions)
		}
	}
	if len(topics) != len(s.model.topics) {
		s.w.fail("model: %d topics, %d were decided", len(topics), len(s.model.topics))
	}
}

func (s *server) now() machine.Now {
	return machine.Now{WallMs: s.w.wallMs(), EngineMs: s.engineStartMs + s.w.nowMs - s.startedMs}
}

// step lets machine and model decide a request, and compares.
func (s *server) step(r *request) {
	w := s.w
	s.op++
	r.op = s.op
	op := machine.Op{ID: s.op, Now: s.now(), Client: machine.Client{ID: "c", Host: "h"}}
	binary.LittleEndian.PutUint64(op.Rand[:], s.op)
	w.stats.Steps++
	if w.trace != nil {
		w.tracef("step %d at %d/%d: %v", s.op, op.Now.WallMs, op.Now.EngineMs, r)
	}
	s.parked[s.op] = r
	s.out.Reset()
	if r.kind == kindAge {
		s.age(r, op.Now)
	} else {
		op.Body = w.body(r)
		s.machine.Step(&op, &s.out)
	}
	s.keep()
	entry := logged{r: r, at: len(s.units), wallMs: op.Now.WallMs, engineMs: op.Now.EngineMs}
	s.model.wallMs, s.model.engineMs = op.Now.WallMs, op.Now.EngineMs
	want := s.model.decide(r)
	for i := range s.out.Replies {
		s.answered(&s.out.Replies[i], want, &entry)
	}
	s.log = append(s.log, entry)
	s.observe(&entry, want)
	if want != nil && s.parked[s.op] != nil {
		w.fail("model: %v is not answered, want %v", r, want)
	}
	if r.kind <= kindAge {
		delete(s.parked, s.op)
	}
	s.show()
	w.mix(uint64(r.kind)<<32 | uint64(len(s.out.Replies)))
	w.mix(s.machine.Hash())
	if r.kind >= kindCreateTopic {
		s.checkTopics()
	}
}

// age journals the record of an InitProducerId by hand (docs/formats/machine.md).
func (s *server) age(r *request, now machine.Now) {
	const kindTxnInit, version = 32, 1
	payload := append(binary.AppendUvarint(nil, uint64(len(r.id))), r.id...)
	for _, v := range [...]int64{r.pid, -1, int64(r.epoch), -1, int64(r.timeoutMs)} {
		payload = binary.AppendVarint(payload, v)
	}
	meta := binary.AppendVarint(binary.AppendVarint([]byte{version}, now.WallMs), now.EngineMs)
	meta = append(binary.AppendUvarint(append(meta, kindTxnInit), uint64(len(payload))), payload...)
	if err := s.machine.Replay(meta, nil); err != nil {
		s.w.fail("V8: the record of an old id does not replay: %w", err)
	}
	s.out.Units = append(s.out.Units, machine.Unit{Meta: meta})
}

// keep takes the units into the journal.
func (s *server) keep() {
	for i := range s.out.Units {
		u := unit{Unit: s.out.Units[i], hash: s.machine.Hash()}
		for _, b := range u.Batches {
			u.headers = append(u.headers, b.Bytes[:record.HeaderSize])
			s.logs[b.Partition] = append(s.logs[b.Partition], appended{len(s.units) + 1, b.BaseOffset, b.LastOffset + 1, b.Bytes})
		}
		s.units = append(s.units, u)
	}
	if len(s.out.Units) > 1 {
		s.w.fail("V3: one operation became %d units", len(s.out.Units))
	}
}

// answered compares one reply and lets it wait for what it saw.
func (s *server) answered(m *machine.Reply, want *reply, entry *logged) {
	w := s.w
	r := s.parked[m.ID]
	if r == nil {
		w.fail("model: operation %d is answered twice, or was never asked: %+v", m.ID, m.Body)
	}
	delete(s.parked, m.ID)
	if k, ok := m.Body.(kmsg.Response); ok && w.IntN(16) == 0 {
		w.scratch = k.AppendTo(w.scratch[:0]) // must not panic
	}
	got := answer(m.Body)
	if w.trace != nil {
		w.tracef("  answer to %d: %v", m.ID, got)
	}
	for _, c := range got.codes {
		w.mix(uint64(uint16(c)))
	}
	if m.ID == s.op && want != nil {
		if !slices.Equal(got.codes, want.codes) && r.kind != kindShelved {
			w.fail("model: %v: codes %v, want %v", r, got.codes, want.codes)
		}
		if !slices.Equal(got.offsets, want.offsets) || !slices.Equal(got.stale, want.stale) {
			w.fail("model: %v: offsets %v stale %v, want %v stale %v", r, got.offsets, got.stale, want.offsets, want.stale)
		}
		if got.detail != want.detail {
			w.fail("model: %v: %s, want %s", r, got.detail, want.detail)
		}
		if got.pid != want.pid || got.epoch != want.epoch {
			w.fail("model: %v: producer %d epoch %d, want %d epoch %d", r, got.pid, got.epoch, want.pid, want.epoch)
		}
	}
	answer := waiting{len(s.units), r, got}
	entry.answers = append(entry.answers, answer)
	if r.from != nil {
		s.waiting = append(s.waiting, answer)
	}
}

// observe lets the model judge what was answered: this operation's answer first, the others depend on it.
func (s *server) observe(e *logged, want *reply) {
	for _, own := range [...]bool{true, false} {
		for _, a := range e.answers {
			if (a.r == e.r) != own || own && want != nil {
				continue
			}
			if err := s.model.observe(a.r, a.reply); err != nil {
				s.w.fail("group: %w", err)
			}
		}
	}
	if e.r.kind == kindTick {
		s.model.unsettle() // a session may have ended right after what was told
	}
}

// show checks the views of this step against the model and lets them wait.
func (s *server) show() {
	for _, v := range s.out.Views {
		old := s.newest[v.Partition]
		if v.LastStable < old.LastStable || v.HighWatermark < old.HighWatermark || v.LastStable > v.HighWatermark {
			s.w.fail("V11: partition %d goes from stable %d of %d to %d of %d", v.Partition, old.LastStable, old.HighWatermark, v.LastStable, v.HighWatermark)
		}
		s.newest[v.Partition] = v
		s.views = append(s.views, pendingView{len(s.units), v})
	}
	for _, v := range s.out.Views {
		s.checkView(s.newest[v.Partition])
	}
	for _, t := range s.out.Topics {
		for _, id := range t.Topic.Partitions {
			if t.Deleted {
				delete(s.newest, id)
			}
		}
	}
}

func (s *server) checkView(v machine.View) {
	p := s.model.parts[v.Partition]
	switch {
	case p == nil:
		s.w.fail("view: partition %d is shown and does not exist", v.Partition)
	case v.HighWatermark != p.end || v.LastStable != p.stable():
		s.w.fail("view: partition %d is stable up to %d of %d, want %d of %d", p.id, v.LastStable, v.HighWatermark, p.stable(), p.end)
	case !slices.Equal(v.Aborted, p.aborted):
		s.w.fail("view: partition %d has aborted transactions %v, want %v", p.id, v.Aborted, p.aborted)
	}
}

// checkViews compares every partition with the model: those, too, of which nothing was said.
func (s *server) checkViews() {
	seen := 0
	for _, v := range s.machine.Views() {
		s.checkView(v)
		seen++
		if n := s.newest[v.Partition]; n.HighWatermark != v.HighWatermark || n.LastStable != v.LastStable || len(n.Aborted) != len(v.Aborted) {
			s.w.fail("view: partition %d was shown as %+v, it is %+v", v.Partition, n, v)
		}
	}
	if seen != len(s.model.parts) {
		s.w.fail("view: %d partitions, %d were decided", seen, len(s.model.parts))
	}
}

// sync makes the journal durable up to a unit: views are swapped, then replies leave.
func (s *server) sync(upTo int) {
	s.durable = max(s.durable, upTo)
	n := 0
	for ; n < len(s.views) && s.views[n].at <= s.durable; n++ {
		s.published[s.views[n].view.Partition] = s.views[n].view
	}
	s.views = slices.Delete(s.views, 0, n)
	for n = 0; n < len(s.waiting) && s.waiting[n].at <= s.durable; n++ {
		if c := s.waiting[n].r.from; !c.lost {
			c.replies = append(c.replies, s.waiting[n])
		}
	}
	s.waiting = slices.Delete(s.waiting, 0, n)
}

// tick lets everything due happen.
func (s *server) tick() {
	for range 1000 {
		due, ok := s.machine.NextTimer()
		now := s.now().EngineMs
		if want := s.model.timers(); want < math64(due, ok) {
			s.w.fail("time: the next timer is at %d (%t), something is due at %d", due, ok, want)
		}
		if !ok || due > now {
			return
		}
		s.step(&request{kind: kindTick})
	}
	s.w.fail("time: ticks do not end")
}

func math64(due int64, ok bool) int64 {
	if !ok {
		return 1<<63 - 1
	}
	return due
}

// snapshot brings the shadow up to somewhere in what is durable, compares, and keeps its state.
func (s *server) snapshot() {
	upTo := s.shadowAt + s.w.IntN(s.durable-s.shadowAt+1)
	s.replay(s.shadow, s.shadowAt, upTo)
	s.shadowAt = upTo
	s.w.stats.Snapshots++
	s.snaps = append(s.snaps, snapshot{upTo, s.shadow.AppendSnapshot(nil)})
	if s.w.trace != nil {
		s.w.tracef("snapshot of %d units", upTo)
	}
}

// replay applies units [from, upTo) and compares the hash with the one of the machine that decided them.
func (s *server) replay(m *machine.Machine, from, upTo int) {
	for i := from; i < upTo; i++ {
		if err := m.Replay(s.units[i].Meta, s.units[i].headers); err != nil {
			s.w.fail("V8: unit %d does not replay: %w", i, err)
		}
		if i == upTo-1 || s.w.IntN(8) == 0 {
			if m.Hash() != s.units[i].hash {
				s.w.fail("V8: unit %d replays to hash %x, the running machine had %x", i, m.Hash(), s.units[i].hash)
			}
		}
	}
}

// restore makes a machine of some snapshot and the units behind it, up to upTo.
func (s *server) restore(upTo int) *machine.Machine {
	m, at := machine.New(s.w.config), 0
	if n := len(s.snaps); n > 0 && s.w.IntN(8) > 0 {
		snap := s.snaps[s.w.IntN(n)]
		var err error
		if m, err = machine.Restore(s.w.config, snap.data); err != nil {
			s.w.fail("V8: the snapshot of %d units cannot be restored: %w", snap.at, err)
		}
		at = snap.at
	}
	s.replay(m, at, upTo)
	return m
}

// crash ends this life. What was durable survives, and of the rest what chance lets: a prefix, for the first unit that is
// torn ends what recovery reads. Everything that survived is durable before anybody is answered.
func (s *server) crash() {
	w := s.w
	kept := s.durable + w.IntN(len(s.units)-s.durable+1)
	w.stats.Crashes++
	if w.trace != nil {
		w.tracef("CRASH with %d units, %d durable, %d survive", len(s.units), s.durable, kept)
	}
	s.units = s.units[:kept]
	s.durable = kept
	for id, log := range s.logs {
		n := slices.IndexFunc(log, func(b appended) bool { return b.at > kept })
		if n >= 0 {
			s.logs[id] = log[:n]
		}
	}
	s.rebuildModel(kept)
	conns := w.conns
	w.conns = nil
	for _, c := range conns {
		c.lose(false)
	}
	s.machine = s.restore(kept)
	w.downtime()
	s.boot()
	s.checkViews()
}

// rebuildModel takes the model back to what survived. A step that wrote nothing counts if what it saw survived.
func (s *server) rebuildModel(kept int) {
	n := slices.IndexFunc(s.log, func(e logged) bool { return e.at > kept })
	if n >= 0 {
		s.log = s.log[:n]
	}
	s.model = newModel(s.w.bounds)
	for i := range s.log {
		e := &s.log[i]
		if e.r == nil {
			s.model.restarted()
			continue
		}
		s.model.wallMs, s.model.engineMs = e.wallMs, e.engineMs
		s.observe(e, s.model.decide(e.r))
	}
}

// checkReplay compares the running machine with one that replayed everything, and with one made of a snapshot.
func (s *server) checkReplay() {
	whole := machine.New(s.w.config)
	s.replay(whole, 0, len(s.units))
	some := s.restore(len(s.units))
	want := s.machine.AppendSnapshot(nil)
	for _, m := range [...]*machine.Machine{whole, some} {
		if m.Hash() != s.machine.Hash() || !bytes.Equal(m.AppendSnapshot(nil), want) {
			s.w.fail("V8: a replayed machine has hash %x, the running one %x, or their snapshots differ", m.Hash(), s.machine.Hash())
		}
	}
}

// describe names what does not come to an end.
func (s *server) describe() string {
	text := fmt.Sprintf("%d units, %d durable, %d replies wait", len(s.units), s.durable, len(s.waiting))
	for _, t := range s.model.sortedIDs() {
		text += fmt.Sprintf("; %s: state %d epoch %d", t.id, t.state, t.epoch)
	}
	return text
}
