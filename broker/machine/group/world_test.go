package group

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// world is a machine around Groups, as thin as can be: it applies records at once, keeps them as a journal, and lets
// a second Groups follow by replay.
type world struct {
	t             *testing.T
	cfg           Config
	gs            *Groups
	shadow        *Groups
	wallMs        int64
	ms            int64
	op            uint64
	ids           int
	client        string
	topics        map[string]int32
	topicsVersion uint64
	log           func(kind uint8, payload []byte)
	reply         func(op uint64, resp kmsg.Response)
}

func newWorld(t *testing.T, cfg Config) *world {
	return &world{t: t, cfg: cfg, gs: New(cfg), shadow: New(cfg), wallMs: 1_000_000, ms: 1000, client: "c",
		topics: map[string]int32{}, topicsVersion: 1, log: func(uint8, []byte) {}, reply: func(uint64, kmsg.Response) {}}
}

func (w *world) WallMs() int64      { return w.wallMs }
func (w *world) EngineMs() int64    { return w.ms }
func (w *world) OpID() uint64       { return w.op }
func (w *world) ClientID() string   { return w.client }
func (w *world) ClientHost() string { return "10.0.0.1" }

func (w *world) NewID() string {
	w.ids++
	return fmt.Sprintf("u%d", w.ids)
}

func (w *world) Record(kind uint8, payload []byte) {
	w.t.Helper()
	if kind < 64 || kind > 95 {
		w.t.Fatalf("record kind %d is not ours", kind)
	}
	if err := w.gs.Apply(kind, payload); err != nil {
		w.t.Fatalf("a decided record does not apply: %v", err)
	}
	w.log(kind, payload)
	if err := w.shadow.Apply(kind, payload); err != nil {
		w.t.Fatalf("a decided record does not replay: %v", err)
	}
	clear(payload)
}

// change is a durable change that the machine makes by a record of its own.
func (w *world) change(f func(*Groups)) {
	f(w.gs)
	f(w.shadow)
}

func (w *world) Reply(op uint64, resp kmsg.Response) { w.reply(op, resp) }

func (w *world) Topic(name string) (id [16]byte, partitions int32, ok bool) {
	partitions, ok = w.topics[name]
	return topicID(name), partitions, ok
}

func (w *world) TopicsVersion() uint64 { return w.topicsVersion }

// May allows everything: permissions are tested in machine, where they come from.
func (w *world) May(kmsg.ACLOperation, kmsg.ACLResourceType, string) bool { return true }

func (w *world) TopicByID(id [16]byte) (string, bool) {
	for name := range w.topics {
		if topicID(name) == id {
			return name, true
		}
	}
	return "", false
}

func topicID(name string) (id [16]byte) {
	copy(id[:], name)
	return id
}

// wait lets ms pass, with a tick whenever one is due.
func (w *world) wait(ms int64) {
	w.t.Helper()
	end := w.ms + ms
	for ticks := 0; ; ticks++ {
		at, ok := w.gs.NextTimer()
		if !ok || at > end {
			break
		}
		if ticks > 100_000 {
			w.t.Fatalf("timers do not come to rest: the next is due at %d, now is %d", at, w.ms)
		}
		w.advance(max(at-w.ms, 0))
		w.op++
		w.gs.Tick(w)
		w.check()
	}
	w.advance(end - w.ms)
}

func (w *world) advance(ms int64) {
	w.ms += ms
	w.wallMs += ms
}

// restart makes the state that a broker has after kill -9, from what was replayed. The one that replays goes on from a
// snapshot too.
func (w *world) restart() {
	w.t.Helper()
	snapshot := w.shadow.AppendSnapshot(nil)
	w.gs, w.shadow = New(w.cfg), New(w.cfg)
	for _, gs := range []*Groups{w.gs, w.shadow} {
		if err := gs.Restore(snapshot); err != nil {
			w.t.Fatal(err)
		}
	}
	w.check()
}

// check compares running, replayed and restored state, and the sums that the running state keeps.
func (w *world) check() {
	w.t.Helper()
	snapshot := w.gs.AppendSnapshot(nil)
	restored := New(w.cfg)
	if err := restored.Restore(snapshot); err != nil {
		w.t.Fatalf("own snapshot: %v", err)
	}
	for what, gs := range map[string]*Groups{"replayed": w.shadow, "restored": restored} {
		if gs.Hash() != w.gs.Hash() {
			w.t.Fatalf("%s state hashes to %x, the running one to %x", what, gs.Hash(), w.gs.Hash())
		}
		if !bytes.Equal(gs.AppendSnapshot(nil), snapshot) {
			w.t.Fatalf("%s state gives another snapshot than the running one", what)
		}
	}
	w.checkSums()
}

// checkSums recounts what is counted incrementally.
func (w *world) checkSums() {
	w.t.Helper()
	var sizeBytes int64
	timers := 0
	w.gs.groups.Scan(func(name string, g *group) bool {
		l := &g.live
		var joining, unsynced, size, offsets, pending int
		sizeBytes += int64(overheadBytes + len(name))
		l.members.Scan(func(id string, m *member) bool {
			if id != m.info.id {
				w.t.Fatalf("group %q: member %q is filed as %q", name, m.info.id, id)
			}
			size += m.info.sizeBytes()
			if m.join.op != 0 {
				joining++
			}
			if m.unsynced {
				unsynced++
			}
			if m.timer.slot == 0 && m.join.op == 0 && m.sync.op == 0 && w.gs.started {
				w.t.Fatalf("group %q: member %q has no session timer and nothing that waits", name, id)
			}
			timers += min(m.timer.slot, 1)
			return true
		})
		if _, ok := g.saved.members.Get(g.saved.leader); !ok && g.saved.leader != "" && g.saved.phase != phaseEmpty {
			w.t.Fatalf("group %q is led by %q, which is no member", name, g.saved.leader)
		}
		g.saved.members.Scan(func(_ string, m *savedMember) bool { sizeBytes += m.sizeBytes(); return true })
		g.saved.topics.Scan(func(_ string, t *topicOffsets) bool {
			for _, e := range t.entries {
				offsets++
				pending += len(e.pending)
				if e.committed != nil {
					sizeBytes += e.committed.sizeBytes()
				}
				for _, p := range e.pending {
					sizeBytes += p.sizeBytes()
				}
			}
			return true
		})
		consumerBytes, consumerTimers := w.checkConsumers(g)
		sizeBytes += consumerBytes
		timers += consumerTimers
		l.pending.Scan(func(id string, _ *timer) bool { sizeBytes += int64(overheadBytes + len(id)); timers++; return true })
		sizeBytes += int64(size)
		timers += min(l.timer.slot, 1)
		if got, want := [5]int{l.joining, l.unsynced, l.sizeBytes, g.saved.offsets, g.saved.pending},
			[5]int{joining, unsynced, size, offsets, pending}; got != want {
			w.t.Fatalf("group %q: joining, unsynced, size, offsets, pending are counted as %v, and are %v", name, got, want)
		}
		return true
	})
	w.gs.settings.Scan(func(name string, s *groupSettings) bool { sizeBytes += s.sizeBytes(name); return true })
	if w.gs.sizeBytes != sizeBytes {
		w.t.Fatalf("size is counted as %d, and is %d", w.gs.sizeBytes, sizeBytes)
	}
	if w.gs.started && len(w.gs.timers.heap) != timers+1 {
		w.t.Fatalf("%d timers run, of which %d belong to groups and one to the sweep", len(w.gs.timers.heap), timers)
	}
}

// checkConsumers recounts what is counted of a consumer group. It returns what its members take, and their timers.
func (w *world) checkConsumers(g *group) (sizeBytes int64, timers int) {
	w.t.Helper()
	c := g.saved.consumer
	if c == nil {
		return 0, 0
	}
	owners, classics := 0, 0
	c.members.Scan(func(id string, m *consumerMember) bool {
		sizeBytes += m.sizeBytes()
		owners += len(m.assigned) + len(m.revoking)
		live := g.live.consumers.timers[id]
		if w.gs.started && (live == nil || live.session.slot == 0) {
			w.t.Fatalf("group %q: member %q has no session timer", g.name, id)
		}
		if live != nil {
			timers += min(live.session.slot, 1) + min(live.revocation.slot, 1) + min(live.sync.slot, 1)
		}
		if m.info.classic != nil {
			classics++
		}
		return true
	})
	if c.sizeBytes != sizeBytes || len(c.owners) != owners {
		w.t.Fatalf("group %q: %d bytes and %d owned partitions are counted, there are %d and %d", g.name, c.sizeBytes,
			len(c.owners), sizeBytes, owners)
	}
	if c.classics != classics || len(g.live.consumers.timers) > c.members.Len() {
		w.t.Fatalf("group %q: %d classic members are counted, there are %d; %d of %d members have timers", g.name, c.classics,
			classics, len(g.live.consumers.timers), c.members.Len())
	}
	c.patterns.Scan(func(_ string, p *pattern) bool { sizeBytes += p.sizeBytes(); return true })
	return sizeBytes, timers
}
