package cores

import (
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kerr"
)

// modelGroup is a group as its members were told about it, and its offsets.
type modelGroup struct {
	generation  int32
	members     map[string]bool // told that they are in this generation
	instances   map[string]string
	completing  bool // surely: a generation has begun, and nothing happened that could have ended it
	assigned    bool
	assignments map[string]string
	offsets     map[place]*modelOffset
}

// modelOffset is one partition: what is committed, and what open transactions may commit, by producer id.
type modelOffset struct {
	committed int64 // -1 without
	order     int   // which commit it was
	pending   map[int64]modelPending
}

type modelPending struct {
	offset int64
	order  int
}

func (m *model) group(name string) *modelGroup {
	g := m.groups[name]
	if g == nil {
		g = &modelGroup{members: map[string]bool{}, instances: map[string]string{}, offsets: map[place]*modelOffset{}}
		m.groups[name] = g
	}
	return g
}

// unsettle: something may have ended the wait for an assignment.
func (m *model) unsettle() {
	for _, g := range m.groups {
		g.completing = false
	}
}

func (g *modelGroup) at(at place) *modelOffset {
	o := g.offsets[at]
	if o == nil {
		o = &modelOffset{committed: -1, pending: map[int64]modelPending{}}
		g.offsets[at] = o
	}
	return o
}

// settle ends a transaction: its offsets count unless a newer commit came meanwhile, or go.
func (g *modelGroup) settle(pid int64, commit bool) {
	for _, o := range g.offsets {
		p, ok := o.pending[pid]
		if !ok {
			continue
		}
		delete(o.pending, pid)
		if commit && p.order > o.order {
			o.committed, o.order = p.offset, p.order
		}
	}
}

// unsettled names a group that has an offset pending at a place; empty if there is none.
func (m *model) unsettled(at place) (name string) {
	for n, g := range m.groups { // any order: the first by name wins
		if o := g.offsets[at]; o != nil && len(o.pending) > 0 && (name == "" || n < name) {
			name = n
		}
	}
	return name
}

func (m *model) fetch(r *request) *reply {
	a := &reply{}
	for _, at := range r.parts {
		code, offset := int16(0), int64(-1)
		if g := m.groups[r.group]; g != nil && g.offsets[at] != nil {
			o := g.offsets[at]
			offset = o.committed
			if r.stable && len(o.pending) > 0 {
				code, offset = kerr.UnstableOffsetCommit.Code, -1
			}
		}
		a.codes, a.offsets = append(a.codes, code), append(a.offsets, offset)
	}
	return a
}

// txnCommit answers for what does not exist, then for the transaction. If that is well, the group has its say, which observe
// judges: nil.
func (m *model) txnCommit(r *request) *reply {
	a := &reply{}
	exist := false
	for _, at := range r.positions {
		code := kerr.UnknownTopicOrPartition.Code
		if m.find(at.place) != nil {
			exist, code = true, 0
		}
		a.codes = append(a.codes, code)
	}
	if !exist {
		return a
	}
	code := participant(m.join(r, nil, r.group, r.version >= 5), r.version >= 4)
	if code == 0 {
		return nil
	}
	for i := range a.codes {
		if a.codes[i] == 0 {
			a.codes[i] = code
		}
	}
	return a
}

// observe judges an answer by what members were told, and takes over what it did.
func (m *model) observe(r *request, a *reply) error {
	switch r.kind {
	case kindCommit, kindTxnCommit:
		return m.observeCommit(r, a)
	case kindJoin:
		return m.observeJoin(r, a)
	case kindSync:
		return m.observeSync(r, a)
	case kindHeartbeat:
		if a.code() == 0 {
			return m.group(r.group).mayAct(r)
		}
	case kindDeleteOffsets, kindDeleteGroup:
		return m.observeDelete(r, a)
	case kindLeave:
		if a.code() == 0 {
			g := m.group(r.group)
			delete(g.members, r.member)
			if g.instances[r.instance] == r.member {
				delete(g.instances, r.instance)
			}
		}
	}
	return nil
}

// mayAct: only a member of the current generation may act for it, and of a static member only its newest self.
func (g *modelGroup) mayAct(r *request) error {
	switch {
	case r.generation != g.generation:
		return fmt.Errorf("%v is accepted, the generation is %d", r, g.generation)
	case !g.members[r.member]:
		return fmt.Errorf("%v is accepted, the members are %v", r, g.members)
	case r.instance != "" && g.instances[r.instance] != r.member:
		return fmt.Errorf("%v is accepted, the instance is %s", r, g.instances[r.instance])
	}
	return nil
}

func (m *model) observeCommit(r *request, a *reply) error {
	g := m.group(r.group)
	m.order++
	accepted := false
	for i, at := range r.positions {
		exists := m.find(at.place) != nil
		switch {
		case !exists && a.codes[i] != kerr.UnknownTopicOrPartition.Code:
			return fmt.Errorf("%v: code %d for a partition that does not exist", r, a.codes[i])
		case exists && a.codes[i] == 0:
			accepted = true
		}
	}
	nobody := r.generation < 0 && r.member == "" && r.instance == "" || r.kind == kindTxnCommit && r.version < 3
	switch {
	case !accepted && nobody && r.kind == kindTxnCommit && len(r.positions) > 0 && m.find(r.positions[0].place) != nil:
		return fmt.Errorf("%v is refused with %d", r, a.code())
	case !accepted:
		m.order--
		return nil
	case r.kind == kindCommit && r.generation == g.generation && r.generation >= 0 && g.completing:
		return fmt.Errorf("%v is accepted, the generation has no assignment yet", r)
	case !nobody && r.generation >= 0: // without one only a group without members accepts; that they are gone, nobody was told
		if err := g.mayAct(r); err != nil {
			return err
		}
	}
	for i, p := range r.positions {
		if a.codes[i] != 0 {
			continue
		}
		if o := g.at(p.place); r.kind == kindCommit {
			o.committed, o.order = p.offset, m.order
		} else {
			o.pending[r.pid] = modelPending{p.offset, m.order}
		}
	}
	return nil
}

func (m *model) observeJoin(r *request, a *reply) error {
	if a.code() != 0 {
		return nil
	}
	g := m.group(r.group)
	switch {
	case a.generation == g.generation+1:
		g.generation, g.members, g.assigned, g.assignments = a.generation, map[string]bool{}, false, nil
		g.completing = true
	case a.generation != g.generation:
		return fmt.Errorf("%v begins generation %d after %d", r, a.generation, g.generation)
	}
	g.members[a.member] = true
	if r.instance != "" {
		if old := g.instances[r.instance]; old != a.member {
			delete(g.members, old)
			if what, ok := g.assignments[old]; ok {
				g.assignments[a.member] = what
			}
		}
		g.instances[r.instance] = a.member
	}
	return nil
}

func (m *model) observeSync(r *request, a *reply) error {
	if a.code() != 0 {
		return nil
	}
	g := m.group(r.group)
	if err := g.mayAct(r); err != nil {
		return err
	}
	if !g.assigned {
		if len(r.order) == 0 {
			return fmt.Errorf("%v gets an assignment before its leader gave one", r)
		}
		g.completing, g.assigned, g.assignments = false, true, maps.Clone(r.assignments)
	}
	if want := g.assignments[r.member]; a.assignment != want {
		return fmt.Errorf("%v is assigned %q, its leader gave it %q", r, a.assignment, want)
	}
	return nil
}
