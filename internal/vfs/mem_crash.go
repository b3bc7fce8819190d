package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// ProcessCrash ends the process that uses m and returns the disk as the next process finds it: every call took
// effect, but what was not durable still is not. m itself is dead.
func (m *Mem) ProcessCrash() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.successor()
	next.root, next.changes = m.root, m.changes
	next.settle()
	return next
}

// PowerLoss cuts the power and returns the disk as the next process finds it. What was not durable is kept, lost or
// torn as seed says; the seed also says how much is kept, from nothing to all. m itself is dead.
func (m *Mem) PowerLoss(seed uint64) *Mem { return m.PowerLossTorn(seed, pageBytes) }

// PowerLossTorn is PowerLoss on a disk that may also tear within a page, at multiples of sectorBytes.
func (m *Mem) PowerLossTorn(seed uint64, sectorBytes int) *Mem {
	if sectorBytes <= 0 || pageBytes%sectorBytes != 0 {
		panic("BUG: sectorBytes must divide 4096")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.successor()
	c := &powerCut{rng: rand.New(rand.NewPCG(seed, 0)), sector: sectorBytes, seen: make(map[*memNode]*memNode)}
	c.keepNames, c.keepBytes = c.rng.IntN(5), c.rng.IntN(5)
	for _, change := range m.changes {
		if c.keep(c.keepNames) {
			change.persist()
		}
	}
	next.root = c.dir(m.root)
	next.settle()
	return next
}

func (m *Mem) successor() *Mem {
	m.dead = true
	return &Mem{capacity: m.capacity, locks: make(map[*memNode]bool)}
}

// settle counts links and space anew: the handles of the dead process are gone.
func (m *Mem) settle() {
	m.used = 0
	counted := make(map[*memNode]bool)
	var walk func(dir *memNode)
	walk = func(dir *memNode) {
		for _, n := range dir.dir {
			if !counted[n] {
				counted[n] = true
				n.links, n.handles = 0, 0
				m.used += n.allocatedBytes()
				if n.dir != nil {
					walk(n)
				}
			}
			n.links++
		}
	}
	walk(m.root)
}

// powerCut draws what is kept.
type powerCut struct {
	rng                  *rand.Rand
	sector               int
	keepNames, keepBytes int // of 4
	seen                 map[*memNode]*memNode
}

func (c *powerCut) keep(of4 int) bool { return c.rng.IntN(4) < of4 }

// dir returns what is left of a folder, everything in it being durable then.
func (c *powerCut) dir(old *memNode) *memNode {
	left := newDir()
	for _, name := range slices.Sorted(maps.Keys(old.durable)) {
		n := old.durable[name]
		if c.seen[n] == nil {
			if n.dir != nil {
				c.seen[n] = c.dir(n)
			} else {
				c.seen[n] = c.file(n)
			}
		}
		left.dir[name] = c.seen[n]
		left.durable[name] = c.seen[n]
	}
	return left
}

// file returns what is left of a file.
func (c *powerCut) file(old *memNode) *memNode {
	left := newFile()
	left.pages = maps.Clone(old.pages)
	left.size = c.size(old.sizes)
	left.sizes = []int64{left.size}
	for _, unsynced := range []map[int64][]*page{old.lost, old.dirty} {
		for _, i := range slices.Sorted(maps.Keys(unsynced)) {
			versions := unsynced[i]
			if before, ok := old.lost[i]; ok {
				versions = append(slices.Clip(before[:1:1]), versions[1:]...)
			}
			if p := c.page(versions); p != nil {
				left.pages[i] = p
			} else {
				delete(left.pages, i)
			}
		}
	}
	maps.DeleteFunc(left.pages, func(i int64, _ *page) bool { return i*pageBytes >= left.size })
	if in := left.size % pageBytes; in > 0 && left.pages[left.size/pageBytes] != nil {
		cut := *left.pages[left.size/pageBytes]
		clear(cut[in:])
		left.pages[left.size/pageBytes] = &cut
	}
	return left
}

func (c *powerCut) size(sizes []int64) int64 { return sizes[c.pick(len(sizes))] }

// pick draws one of n versions, of which the first is the durable one and the last the current one.
func (c *powerCut) pick(n int) int {
	switch {
	case c.keepBytes == 0:
		return 0
	case c.keep(c.keepBytes):
		return n - 1
	}
	return c.rng.IntN(n)
}

// page picks one version, or tears several together sector by sector.
func (c *powerCut) page(versions []*page) *page {
	if c.sector == pageBytes {
		return versions[c.pick(len(versions))]
	}
	torn := new(page)
	for at := 0; at < pageBytes; at += c.sector {
		if p := versions[c.pick(len(versions))]; p != nil {
			copy(torn[at:at+c.sector], p[at:])
		}
	}
	return torn
}
