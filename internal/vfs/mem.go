package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
)

// ErrCrashed is what every call on a Mem, its files and locks returns after its crash.
var ErrCrashed = errors.New("the process that used this disk has crashed")

// Op names a kind of call for Mem.FailNext.
type Op uint8

// The calls that can be made to fail.
const (
	OpCreate Op = iota
	OpOpen
	OpRename // also Link
	OpRemove
	OpSyncDir
	OpRead
	OpWrite // also WriteVecAt
	OpSync
	OpAllocate // also Truncate
	opCount
)

// Mem is a disk in memory that knows what is durable. Its crash model is harsher than any one file system:
//   - A file's bytes are durable after Sync. Until then each 4 KiB page comes back from a power cut as any one of its
//     versions since the last Sync, independently of all other pages; so does the file's size.
//   - Names are durable after SyncDir. Until then each create, rename, link and removal comes back kept or lost,
//     independently of all others; one rename is never half done.
//   - A process crash loses nothing, but makes nothing durable either.
//   - After a failed Sync the bytes that it should have made durable may be lost even if a later Sync succeeds.
//
// It is safe for concurrent use.
type Mem struct {
	mu       sync.Mutex
	dead     bool
	root     *memNode
	changes  []*nameChange // not yet synced, oldest first
	locks    map[*memNode]bool
	capacity int64 // bytes; negative is unbounded
	used     int64
	faults   [opCount][]fault
	counts   [opCount]int
	stopIn   int // changing calls until the crash; 0: none is planned
}

type fault struct {
	skip int
	err  error
}

// memNode is a file or a folder.
type memNode struct {
	dir     map[string]*memNode // nil for a file
	durable map[string]*memNode // what a power cut leaves of dir if all unsynced changes are lost

	inode
	links, handles int
}

// nameChange is one atomic change of names.
type nameChange struct{ edits []nameEdit }

type nameEdit struct {
	dir  *memNode
	name string
	node *memNode // nil removes
}

// NewMem returns an empty disk without a bound.
func NewMem() *Mem {
	return &Mem{root: newDir(), locks: make(map[*memNode]bool), capacity: -1}
}

func newDir() *memNode {
	return &memNode{dir: make(map[string]*memNode), durable: make(map[string]*memNode), links: 1}
}

// SetCapacity bounds the disk; calls that need more fail with ErrNoSpace. Negative is unbounded.
func (m *Mem) SetCapacity(sizeBytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = sizeBytes
}

// UsedBytes is what the files take, reserved space included.
func (m *Mem) UsedBytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// FailNext lets the call of kind op after the next skip ones fail with err. A failed write has written some whole
// pages of its bytes, or none; a failed sync has made nothing durable.
func (m *Mem) FailNext(op Op, skip int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults[op] = append(m.faults[op], fault{skip: skip, err: err})
}

// CrashAfter lets the process die within a call: the calls before the one of that number, counting those
// that change something, take effect, and it and every later one return ErrCrashed. ProcessCrash or PowerLoss then give
// what is left. 0 undoes it.
func (m *Mem) CrashAfter(changes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopIn = changes
}

// Count is how many calls of kind op were made so far.
func (m *Mem) Count(op Op) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts[op]
}

// enter counts a call and reports whether it must fail. It is called with m.mu held.
func (m *Mem) enter(op Op) error {
	if m.dead {
		return ErrCrashed
	}
	m.counts[op]++
	if m.stopIn > 0 && op != OpRead && op != OpOpen {
		if m.stopIn--; m.stopIn == 0 {
			m.dead = true
			return ErrCrashed
		}
	}
	var failed error
	m.faults[op] = slices.DeleteFunc(m.faults[op], func(f fault) bool { return f.skip < 0 })
	for i := range m.faults[op] {
		f := &m.faults[op][i]
		if f.skip == 0 && failed == nil {
			failed = f.err
		}
		f.skip--
	}
	return failed
}

// find returns the node of name, or nil.
func (m *Mem) find(name string) *memNode {
	node := m.root
	if name == "." {
		return node
	}
	for part := range strings.SplitSeq(name, "/") {
		if node == nil || node.dir == nil {
			return nil
		}
		node = node.dir[part]
	}
	return node
}

// parent returns the folder of name and its last element.
func (m *Mem) parent(op, name string) (*memNode, string, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	dir := m.find(path.Dir(name))
	if dir == nil || dir.dir == nil {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return dir, path.Base(name), nil
}

// change applies edits to the names at once and remembers them as unsynced.
func (m *Mem) change(edits ...nameEdit) {
	for _, e := range edits {
		if old := e.dir.dir[e.name]; old != nil {
			old.links--
			m.release(old)
		}
		if e.node == nil {
			delete(e.dir.dir, e.name)
			continue
		}
		e.dir.dir[e.name] = e.node
		e.node.links++
	}
	m.changes = append(m.changes, &nameChange{edits: edits})
}

// release gives back the space of a file that has neither name nor user. Its bytes stay: a power cut may bring the
// name back.
func (m *Mem) release(n *memNode) {
	if n.links == 0 && n.handles == 0 && n.dir == nil {
		m.used -= n.allocatedBytes()
	}
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return ErrCrashed
	}
	if !fs.ValidPath(dir) {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: fs.ErrInvalid}
	}
	if dir == "." {
		return nil
	}
	node := m.root
	for part := range strings.SplitSeq(dir, "/") {
		next := node.dir[part]
		if next == nil {
			next = newDir()
			next.links = 0
			m.change(nameEdit{node, part, next})
		}
		if next.dir == nil {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: errors.New("not a directory")}
		}
		node = next
	}
	return nil
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpCreate); err != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: err}
	}
	dir, base, err := m.parent("create", name)
	if err != nil {
		return nil, err
	}
	if dir.dir[base] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	node := newFile()
	m.change(nameEdit{dir, base, node})
	return m.handle(name, node), nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpOpen); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	node := m.find(name)
	if node == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if node.dir != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("is a directory")}
	}
	return m.handle(name, node), nil
}

func (m *Mem) handle(name string, node *memNode) *memFile {
	node.handles++
	return &memFile{m: m, name: name, node: node}
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	return m.move("rename", oldName, newName, func(from, to *memNode, oldBase, newBase string) error {
		node := from.dir[oldBase]
		if replaced := to.dir[newBase]; replaced != nil && (replaced.dir != nil) != (node.dir != nil) {
			return errors.New("a file and a directory")
		}
		if from == to && oldBase == newBase {
			return nil
		}
		m.change(nameEdit{to, newBase, node}, nameEdit{from, oldBase, nil})
		return nil
	})
}

// Link implements FS.
func (m *Mem) Link(oldName, newName string) error {
	return m.move("link", oldName, newName, func(from, to *memNode, oldBase, newBase string) error {
		if to.dir[newBase] != nil {
			return fs.ErrExist
		}
		if from.dir[oldBase].dir != nil {
			return errors.New("is a directory")
		}
		m.change(nameEdit{to, newBase, from.dir[oldBase]})
		return nil
	})
}

func (m *Mem) move(op, oldName, newName string, do func(from, to *memNode, oldBase, newBase string) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpRename); err != nil {
		return &fs.PathError{Op: op, Path: oldName, Err: err}
	}
	from, oldBase, err := m.parent(op, oldName)
	if err != nil {
		return err
	}
	to, newBase, err := m.parent(op, newName)
	if err != nil {
		return err
	}
	if from.dir[oldBase] == nil {
		return &fs.PathError{Op: op, Path: oldName, Err: fs.ErrNotExist}
	}
	if err := do(from, to, oldBase, newBase); err != nil {
		return &fs.PathError{Op: op, Path: newName, Err: err}
	}
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpRemove); err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	dir, base, err := m.parent("remove", name)
	if err != nil {
		return err
	}
	node := dir.dir[base]
	if node == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	if len(node.dir) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: errors.New("directory not empty")}
	}
	m.change(nameEdit{dir, base, nil})
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return nil, ErrCrashed
	}
	if !fs.ValidPath(dir) {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: fs.ErrInvalid}
	}
	node := m.find(dir)
	if node == nil || node.dir == nil {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: fs.ErrNotExist}
	}
	names := make([]string, 0, len(node.dir))
	for name := range node.dir {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpSyncDir); err != nil {
		return &fs.PathError{Op: "syncdir", Path: dir, Err: err}
	}
	node := m.find(dir)
	if node == nil || node.dir == nil {
		return &fs.PathError{Op: "syncdir", Path: dir, Err: fs.ErrNotExist}
	}
	// What an earlier change did to the same names is overtaken by that and must not come back later.
	due := make(map[*nameChange]bool)
	for i, c := range slices.Backward(m.changes) {
		due[c] = slices.ContainsFunc(c.edits, func(e nameEdit) bool { return e.dir == node }) ||
			slices.ContainsFunc(m.changes[i+1:], func(later *nameChange) bool { return due[later] && later.sameName(c) })
	}
	m.changes = slices.DeleteFunc(m.changes, func(c *nameChange) bool {
		if due[c] {
			c.persist()
		}
		return due[c]
	})
	return nil
}

// sameName reports whether both change one name.
func (c *nameChange) sameName(d *nameChange) bool {
	return slices.ContainsFunc(c.edits, func(e nameEdit) bool {
		return slices.ContainsFunc(d.edits, func(f nameEdit) bool { return e.dir == f.dir && e.name == f.name })
	})
}

// persist makes a change part of what a power cut leaves.
func (c *nameChange) persist() {
	for _, e := range c.edits {
		if e.node == nil {
			delete(e.dir.durable, e.name)
		} else {
			e.dir.durable[e.name] = e.node
		}
	}
}

// Lock implements FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return nil, ErrCrashed
	}
	dir, base, err := m.parent("lock", name)
	if err != nil {
		return nil, err
	}
	node := dir.dir[base]
	if node == nil {
		node = newFile()
		m.change(nameEdit{dir, base, node})
	}
	if m.locks[node] {
		return nil, fmt.Errorf("lock %s: %w", name, ErrLocked)
	}
	m.locks[node] = true
	return &memLock{m: m, node: node}, nil
}

type memLock struct {
	m    *Mem
	node *memNode
	once sync.Once
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.m.dead {
		return ErrCrashed
	}
	l.once.Do(func() { delete(l.m.locks, l.node) })
	return nil
}
