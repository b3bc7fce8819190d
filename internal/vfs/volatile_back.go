package vfs

import (
	"slices"
	"time"
)

// breathe is called at the end of calls: now and then it writes something back. A failure shows at the next sync.
func (v *volatileFS) breathe() {
	if v.rng.IntN(256) == 0 {
		v.mood()
	}
	for v.failed == nil && v.rng.IntN(5) < v.eagerBytes {
		v.writeSome()
	}
	if v.failed == nil && len(v.changes) > 0 && v.rng.IntN(5) < v.eagerNames {
		_ = v.fail(v.apply(v.changes[v.rng.IntN(len(v.changes))]))
	}
	for v.failed == nil && len(v.changes) > maxPendingChanges {
		_ = v.fail(v.apply(v.changes[0]))
	}
}

// fail remembers the first failure.
func (v *volatileFS) fail(err error) error {
	if v.failed == nil {
		v.failed = err
	}
	return err
}

// turn lets others in, as a sync that takes its time.
func (v *volatileFS) turn() {
	if v.pause == nil {
		return
	}
	d := time.Duration(v.rng.IntN(300)) * time.Microsecond
	v.mu.Unlock()
	defer v.mu.Lock()
	v.pause(d)
}

// writeSome writes back some of what is pending, in any order.
func (v *volatileFS) writeSome() {
	if len(v.dirty) == 0 {
		return
	}
	if v.rng.IntN(4) == 0 {
		n := v.dirty[v.rng.IntN(len(v.dirty))]
		_ = v.fail(v.writeSize(n))
		v.rest(n)
	}
	if len(v.queue) == 0 {
		return
	}
	at := v.rng.IntN(len(v.queue))
	run := slices.Clone(v.queue[at:min(len(v.queue), at+1+v.rng.IntN(16))])
	for _, i := range v.rng.Perm(len(run)) {
		if run[i].pending && v.rng.IntN(4) > 0 {
			v.writeBack(run[i])
		}
	}
}

// bound writes back the oldest sectors when there are too many.
func (v *volatileFS) bound() {
	if len(v.queue) > 2*v.pending+1024 {
		v.queue = slices.DeleteFunc(v.queue, func(s *volSector) bool { return !s.pending })
	}
	if v.pending <= maxPendingSectors || v.failed != nil {
		return
	}
	for i := 0; i < len(v.queue) && v.pending > maxPendingSectors*3/4; i++ {
		if v.queue[i].pending {
			v.writeBack(v.queue[i])
		}
	}
}

func (v *volatileFS) writeBack(s *volSector) {
	_ = v.fail(v.writeRun(s.n, []*volSector{s}))
	v.rest(s.n)
}

// writeRun writes the sectors of a run that are still pending.
func (v *volatileFS) writeRun(n *volNode, run []*volSector) error {
	for len(run) > 0 {
		if !run[0].pending {
			run = run[1:]
			continue
		}
		count := 1
		for count < len(run) && run[count].pending {
			count++
		}
		start, end := run[0].index*sectorBytes, min(n.size, (run[count-1].index+1)*sectorBytes)
		// Otherwise the last sector would have new bytes up to the cut, and old ones behind it.
		if (run[count-1].index+1)*sectorBytes > n.cut {
			if err := v.writeSize(n); err != nil {
				return err
			}
		}
		var bufs [][]byte
		for _, s := range run[:count] {
			bufs = append(bufs, s.data[:min(sectorBytes, end-s.index*sectorBytes)])
		}
		if err := n.file.WriteVecAt(bufs, start); err != nil {
			return err
		}
		for _, s := range run[:count] {
			v.forget(s)
		}
		run = run[count:]
	}
	return nil
}

// writeSize brings a file's size to under: first what was cut, whatever it has grown to since.
func (v *volatileFS) writeSize(n *volNode) error {
	for _, size := range []int64{n.cut, n.size} {
		if size != n.onDisk {
			if err := n.file.Truncate(size); err != nil {
				return err
			}
			n.onDisk = size
		}
	}
	n.cut = n.onDisk
	if n.from < n.to {
		if err := n.file.Allocate(n.from, n.to-n.from); err != nil {
			return err
		}
		n.from, n.to = 0, 0
	}
	return nil
}

// rest lets go of what a file does not need any more.
func (v *volatileFS) rest(n *volNode) {
	if n.dir != nil {
		return
	}
	gone := n.links == 0 && n.handles == 0
	if gone && n.unsynced() {
		v.truncate(n, 0)
		n.size, n.cut, n.from, n.to = n.onDisk, n.onDisk, 0, 0
	}
	if !n.unsynced() {
		if n.dirty {
			n.dirty = false
			v.dirty = slices.DeleteFunc(v.dirty, func(d *volNode) bool { return d == n })
		}
		if n.handles == 0 && n.file != nil {
			_ = v.fail(n.file.Close())
			n.file = nil
		}
	}
	if gone && n.named == 0 && n.private {
		_ = v.fail(v.under.Remove(v.path(n)))
		n.private = false
	}
}

// touches reports whether the change is one of dir's names.
func (c *volChange) touches(dir *volNode) bool {
	return slices.ContainsFunc(c.edits, func(e volEdit) bool { return e.dir == dir })
}

// follows reports whether the earlier change d must be on under before c is.
func (c *volChange) follows(d *volChange) bool {
	return c.last || slices.ContainsFunc(c.edits, func(e volEdit) bool {
		return e.old != nil && e.old.dir != nil && d.touches(e.old) ||
			slices.ContainsFunc(d.edits, func(before volEdit) bool { return before.volPlace == e.volPlace })
	})
}

// apply brings a change of names to under, and before it those that it builds on.
func (v *volatileFS) apply(c *volChange) error {
	at := slices.Index(v.changes, c)
	if at < 0 {
		return nil
	}
	need := []*volChange{c}
	for _, d := range slices.Backward(v.changes[:at]) {
		if slices.ContainsFunc(need, func(n *volChange) bool { return n.follows(d) }) {
			need = append(need, d)
		}
	}
	for _, d := range slices.Backward(need) {
		if err := v.carryOut(d); err != nil {
			return err
		}
		v.changes = slices.DeleteFunc(v.changes, func(other *volChange) bool { return other == d })
		for _, e := range d.edits {
			if e.node != nil {
				e.node.named--
				v.rest(e.node)
			}
			if e.old != nil {
				v.rest(e.old)
			}
		}
	}
	return nil
}

// carryOut makes a change of names on under, with one call that matters.
func (v *volatileFS) carryOut(c *volChange) error {
	to := c.edits[0]
	there := to.dir.durable[to.name]
	switch {
	case to.node == nil:
		return v.removeThere(to.volPlace, there)
	case len(c.edits) == 1:
		return v.nameThere(to.volPlace, to.node)
	}
	if there != nil && v.keeps(there) {
		// Its other names are still to come.
		if err := v.shelter(v.under.Link, to.volPlace, there); err != nil {
			return err
		}
	}
	from := c.edits[1].volPlace
	if err := v.under.Rename(v.pathOf(from), v.pathOf(to.volPlace)); err != nil {
		return err
	}
	if there != nil {
		there.leave(to.volPlace)
	}
	to.node.leave(from)
	delete(from.dir.durable, from.name)
	to.dir.durable[to.name] = to.node
	to.node.places = append(to.node.places, to.volPlace)
	return nil
}

func (n *volNode) leave(at volPlace) {
	n.places = slices.DeleteFunc(n.places, func(p volPlace) bool { return p == at })
}

// keeps reports whether the last name on under of a file that is still needed is being taken away.
func (v *volatileFS) keeps(n *volNode) bool {
	return n.dir == nil && !n.private && len(n.places) == 1 && (n.links > 0 || n.named > 0)
}

// shelter gives n a name in the home.
func (v *volatileFS) shelter(move func(from, to string) error, at volPlace, n *volNode) error {
	err := v.makeHome()
	if err == nil {
		err = move(v.pathOf(at), v.path(&volNode{id: n.id, private: true}))
	}
	n.private = err == nil
	return err
}

func (v *volatileFS) removeThere(at volPlace, there *volNode) error {
	if v.keeps(there) {
		if err := v.shelter(v.under.Rename, at, there); err != nil {
			return err
		}
	} else if err := v.under.Remove(v.pathOf(at)); err != nil {
		return err
	}
	there.leave(at)
	delete(at.dir.durable, at.name)
	return nil
}

func (v *volatileFS) nameThere(at volPlace, n *volNode) error {
	move := v.under.Link
	if n.private {
		move = v.under.Rename
	}
	if err := move(v.path(n), v.pathOf(at)); err != nil {
		return err
	}
	n.private = false
	n.places = append(n.places, at)
	at.dir.durable[at.name] = n
	return nil
}
