package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Volatile returns a disk over under that makes the death of the process a power cut: what is not synced lies in the
// process's memory only, and goes with it. It is for real processes in tests; Mem is for one process.
//
//   - Bytes and sizes reach under with File.Sync, names with SyncDir. Reads see all of them at once.
//   - Meanwhile, as a kernel writes back when it likes, single sectors of 512 bytes, sizes and names reach under at
//     random moments and in any order, so that writes are torn and overtake each other. How eager it is changes now and
//     then, from not at all to nearly at once. Changes of one and the same name keep their order.
//   - So does a sync: killed within it, some of it is there.
//   - What under holds at any moment is a state that Mem.PowerLossTorn(…, 512) could leave after the same calls; only,
//     a file may have been truncated before it got what was written until then to the sector of its new end.
//
// Up to 8 MiB and 1,024 changes of names are held; then the oldest are written back. A sync takes up to a millisecond,
// as on a disk, but does not sync under. Full disks and other failures show when bytes reach under, and end all
// syncing: every later Sync and SyncDir returns the same error.
//
// Files whose names are not synced yet wait in the folder ".volatile" of under, which is not to be seen here; the next
// one to take a lock here removes what a dead process left in it. Only one process may change under at a time, so the
// lock must be taken before other files are changed. The seed draws what is written back when; calls that overlap draw
// in the order in which they happen to come.
func Volatile(under FS, seed uint64) FS {
	v := newVolatile(under, seed)
	v.pause = time.Sleep
	return v
}

const (
	sectorBytes       = 512
	maxPendingSectors = 8 << 20 / sectorBytes
	maxPendingChanges = 1024
	volatileHome      = ".volatile"
)

// volatileFS is what Volatile returns. The names of under are read as they are needed and then kept.
type volatileFS struct {
	under FS
	pause func(time.Duration) // nil: syncs take no time

	mu                     sync.RWMutex
	rng                    *rand.Rand
	eagerNames, eagerBytes int // of 4
	failed                 error

	root    *volNode
	home    string // this process's folder in volatileHome; empty until it is needed
	nextID  uint64
	handles int

	changes []*volChange // oldest first
	queue   []*volSector // oldest first, with some that are not pending any more
	pending int          // sectors
	dirty   []*volNode   // files with bytes or a size that under does not have
}

// volNode is a file or a folder.
type volNode struct {
	known        bool                // whether it is known if this is a folder
	dir, durable map[string]*volNode // of a folder: what is in it, and what is in it on under; nil for a file

	id      uint64
	private bool       // it lies in the home, under its id
	places  []volPlace // other names that it has on under
	links   int        // names that it has here
	named   int        // changes not yet on under that give it a name
	volInode
}

type volPlace struct {
	dir  *volNode
	name string
}

// volChange is one atomic change of names: one edit, or for a rename first the new name and then the old one.
type volChange struct {
	edits []volEdit
	// last is set if it moves a folder: then all earlier changes come before it.
	last bool
}

type volEdit struct {
	volPlace
	node, old *volNode // node nil removes; old is what had the name until then
}

func newVolatile(under FS, seed uint64) *volatileFS {
	v := &volatileFS{under: under, rng: rand.New(rand.NewPCG(seed, 0)), root: &volNode{}}
	v.mood()
	return v
}

// mood draws how eager write-back is.
func (v *volatileFS) mood() { v.eagerNames, v.eagerBytes = v.rng.IntN(5), v.rng.IntN(5) }

// makeHome makes the home if there is none yet.
func (v *volatileFS) makeHome() error {
	if v.home != "" {
		return nil
	}
	home := fmt.Sprintf("%s/%016x", volatileHome, rand.Uint64())
	if err := v.under.MkdirAll(home); err != nil {
		return err
	}
	v.home = home
	return nil
}

// newNode returns a node that is to lie in the home.
func (v *volatileFS) newNode() (*volNode, error) {
	if err := v.makeHome(); err != nil {
		return nil, err
	}
	v.nextID++
	return &volNode{known: true, id: v.nextID, private: true}, nil
}

// path is where a node lies on under.
func (v *volatileFS) path(n *volNode) string {
	switch {
	case n == v.root:
		return "."
	case n.private:
		return fmt.Sprintf("%s/%d", v.home, n.id)
	case len(n.places) == 0:
		panic("BUG: a file without a name on the disk below is looked for there")
	}
	return v.pathOf(n.places[0])
}

func (v *volatileFS) pathOf(p volPlace) string { return path.Join(v.path(p.dir), p.name) }

// load finds out whether n is a folder, and what is in it.
func (v *volatileFS) load(n *volNode) error {
	if n.known {
		return nil
	}
	names, err := v.under.List(v.path(n))
	if err != nil {
		f, openErr := v.under.Open(v.path(n))
		if openErr != nil {
			return err
		}
		n.known = true
		return f.Close()
	}
	n.known, n.dir, n.durable = true, make(map[string]*volNode), make(map[string]*volNode)
	for _, name := range names {
		if n == v.root && name == volatileHome {
			continue
		}
		v.nextID++
		child := &volNode{id: v.nextID, links: 1, places: []volPlace{{n, name}}}
		n.dir[name], n.durable[name] = child, child
	}
	return nil
}

// find returns the node of name, loaded, or nil.
func (v *volatileFS) find(name string) (*volNode, error) {
	node := v.root
	if err := v.load(node); err != nil || name == "." {
		return node, err
	}
	for part := range strings.SplitSeq(name, "/") {
		if node = node.dir[part]; node == nil {
			return nil, nil
		}
		if err := v.load(node); err != nil {
			return nil, err
		}
	}
	return node, nil
}

// parent returns the place of name.
func (v *volatileFS) parent(name string) (volPlace, error) {
	if !fs.ValidPath(name) || name == "." || name == volatileHome || strings.HasPrefix(name, volatileHome+"/") {
		return volPlace{}, fs.ErrInvalid
	}
	dir, err := v.find(path.Dir(name))
	if err == nil && (dir == nil || dir.dir == nil) {
		err = fs.ErrNotExist
	}
	return volPlace{dir, path.Base(name)}, err
}

// existing returns the place of name and what is there.
func (v *volatileFS) existing(name string) (volPlace, *volNode, error) {
	at, err := v.parent(name)
	if err != nil {
		return at, nil, err
	}
	node := at.dir.dir[at.name]
	if node == nil {
		return at, nil, fs.ErrNotExist
	}
	return at, node, v.load(node)
}

// change makes edits seen at once and remembers them.
func (v *volatileFS) change(edits ...volEdit) {
	c := &volChange{edits: edits}
	for i := range c.edits {
		e := &c.edits[i]
		e.old = e.dir.dir[e.name]
		if e.old != nil {
			e.old.links--
		}
		if e.node == nil {
			delete(e.dir.dir, e.name)
			continue
		}
		e.dir.dir[e.name] = e.node
		e.node.links++
		e.node.named++
		c.last = len(edits) > 1 && e.node.dir != nil
	}
	v.changes = append(v.changes, c)
	for _, e := range c.edits {
		if e.old != nil {
			v.rest(e.old)
		}
	}
	v.breathe()
}

// with runs a call on names and wraps its error.
func (v *volatileFS) with(op, name string, do func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	err := do()
	var already *fs.PathError
	if err == nil || errors.As(err, &already) {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// MkdirAll implements FS.
func (v *volatileFS) MkdirAll(dir string) error {
	return v.with("mkdir", dir, func() error {
		if !fs.ValidPath(dir) || dir == volatileHome || strings.HasPrefix(dir, volatileHome+"/") {
			return fs.ErrInvalid
		}
		if err := v.under.MkdirAll("."); err != nil {
			return err
		}
		defer v.breathe()
		node, err := v.find(".")
		if err != nil || dir == "." {
			return err
		}
		for part := range strings.SplitSeq(dir, "/") {
			next := node.dir[part]
			if next == nil {
				if next, err = v.makeDir(); err != nil {
					return err
				}
				v.change(volEdit{volPlace: volPlace{node, part}, node: next})
			}
			if err := v.load(next); err != nil {
				return err
			}
			if next.dir == nil {
				return errors.New("not a directory")
			}
			node = next
		}
		return nil
	})
}

func (v *volatileFS) makeDir() (*volNode, error) {
	n, err := v.newNode()
	if err != nil {
		return nil, err
	}
	n.dir, n.durable = make(map[string]*volNode), make(map[string]*volNode)
	return n, v.under.MkdirAll(v.path(n))
}

// Create implements FS.
func (v *volatileFS) Create(name string) (f File, err error) {
	err = v.with("create", name, func() error {
		at, err := v.parent(name)
		if err != nil {
			return err
		}
		if at.dir.dir[at.name] != nil {
			return fs.ErrExist
		}
		n, err := v.newNode()
		if err != nil {
			return err
		}
		if n.file, err = v.under.Create(v.path(n)); err != nil {
			return err
		}
		f = v.handle(name, n)
		v.change(volEdit{volPlace: at, node: n})
		return nil
	})
	return f, err
}

// Open implements FS.
func (v *volatileFS) Open(name string) (f File, err error) {
	err = v.with("open", name, func() error {
		_, n, err := v.existing(name)
		if err != nil {
			return err
		}
		if n.dir != nil {
			return errors.New("is a directory")
		}
		if n.file == nil {
			if err := n.open(v.under, v.path(n)); err != nil {
				return err
			}
		}
		f = v.handle(name, n)
		v.breathe()
		return nil
	})
	return f, err
}

func (v *volatileFS) handle(name string, n *volNode) *volFile {
	n.handles++
	v.handles++
	return &volFile{v: v, name: name, n: n}
}

// Rename implements FS.
func (v *volatileFS) Rename(oldName, newName string) error {
	return v.with("rename", oldName+" to "+newName, func() error {
		from, node, err := v.existing(oldName)
		if err != nil {
			return err
		}
		to, replaced, err := v.existing(newName)
		switch {
		case errors.Is(err, fs.ErrNotExist) && to.dir != nil:
		case err != nil:
			return err
		case replaced == node:
			return nil
		case (replaced.dir != nil) != (node.dir != nil):
			return errors.New("a file and a directory")
		case len(replaced.dir) > 0:
			return errors.New("directory not empty")
		}
		if node.dir != nil && strings.HasPrefix(newName, oldName+"/") {
			return fs.ErrInvalid
		}
		v.change(volEdit{volPlace: to, node: node}, volEdit{volPlace: from})
		return nil
	})
}

// Link implements FS.
func (v *volatileFS) Link(oldName, newName string) error {
	return v.with("link", oldName+" to "+newName, func() error {
		_, node, err := v.existing(oldName)
		if err != nil {
			return err
		}
		to, err := v.parent(newName)
		switch {
		case err != nil:
			return err
		case to.dir.dir[to.name] != nil:
			return fs.ErrExist
		case node.dir != nil:
			return errors.New("is a directory")
		}
		v.change(volEdit{volPlace: to, node: node})
		return nil
	})
}

// Remove implements FS.
func (v *volatileFS) Remove(name string) error {
	return v.with("remove", name, func() error {
		at, node, err := v.existing(name)
		if err != nil {
			return err
		}
		if len(node.dir) > 0 {
			return errors.New("directory not empty")
		}
		v.change(volEdit{volPlace: at})
		return nil
	})
}

// List implements FS.
func (v *volatileFS) List(dir string) (names []string, err error) {
	err = v.with("list", dir, func() error {
		node, err := v.folder(dir)
		if err != nil {
			return err
		}
		names = make([]string, 0, len(node.dir))
		for name := range node.dir {
			names = append(names, name)
		}
		slices.Sort(names)
		v.breathe()
		return nil
	})
	return names, err
}

func (v *volatileFS) folder(dir string) (*volNode, error) {
	if !fs.ValidPath(dir) {
		return nil, fs.ErrInvalid
	}
	node, err := v.find(dir)
	if err == nil && (node == nil || node.dir == nil) {
		err = fs.ErrNotExist
	}
	return node, err
}

// SyncDir implements FS.
func (v *volatileFS) SyncDir(dir string) error {
	return v.with("syncdir", dir, func() error {
		node, err := v.folder(dir)
		if err != nil {
			return err
		}
		var due []*volChange
		for _, c := range v.changes {
			if c.touches(node) {
				due = append(due, c)
			}
		}
		v.rng.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
		v.turn()
		for i, c := range due {
			if i > 0 && i == len(due)/2 {
				v.turn()
			}
			if err := v.apply(c); err != nil {
				return v.fail(err)
			}
		}
		return v.failed
	})
}

// Lock implements FS. The lock is under's own, and so are at once the names on the way to it.
func (v *volatileFS) Lock(name string) (lock io.Closer, err error) {
	err = v.with("lock", name, func() error {
		at, err := v.parent(name)
		if err != nil {
			return err
		}
		if err := v.settle(at); err != nil {
			return err
		}
		if lock, err = v.under.Lock(v.pathOf(at)); err != nil {
			return err
		}
		if err = v.sweep(); err == nil {
			at, err = v.parent(name)
		}
		if err != nil {
			return errors.Join(err, lock.Close())
		}
		if at.dir.dir[at.name] == nil {
			v.nextID++
			n := &volNode{known: true, id: v.nextID, links: 1, places: []volPlace{at}}
			at.dir.dir[at.name], at.dir.durable[at.name] = n, n
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// settle brings a place's folders to under, and what is known of its name.
func (v *volatileFS) settle(at volPlace) error {
	for _, c := range slices.Clone(v.changes) {
		if c.edits[0].volPlace == at || c.edits[len(c.edits)-1].volPlace == at {
			if err := v.apply(c); err != nil {
				return err
			}
		}
	}
	for dir := at.dir; dir != v.root; dir = dir.places[0].dir {
		for _, c := range slices.Clone(v.changes) {
			if c.edits[0].node == dir {
				if err := v.apply(c); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sweep removes what dead processes left. If nothing was done here yet, what was read before the lock is forgotten:
// the dead may have been alive then.
func (v *volatileFS) sweep() error {
	if len(v.changes) == 0 && len(v.dirty) == 0 && v.handles == 0 {
		v.root = &volNode{}
	}
	if _, err := v.find("."); err != nil {
		return err
	}
	homes, err := v.under.List(volatileHome)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, home := range homes {
		if dir := path.Join(volatileHome, home); err == nil && dir != v.home {
			err = removeTree(v.under, dir)
		}
	}
	return err
}

func removeTree(disk FS, name string) error {
	if names, err := disk.List(name); err == nil {
		for _, inside := range names {
			if err := removeTree(disk, path.Join(name, inside)); err != nil {
				return err
			}
		}
	}
	return disk.Remove(name)
}
