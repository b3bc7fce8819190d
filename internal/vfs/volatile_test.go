package vfs

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
)

var oneSeed = flag.Uint64("seed", 0, "the only seed of TestVolatileAgainstModel")

// volatileOutcomes collects what the deaths of some processes leave of name on under, "-" if it is gone.
func volatileOutcomes(t *testing.T, build func(v FS), name string) map[string]int {
	t.Helper()
	seen := make(map[string]int)
	for seed := range uint64(1000) {
		under := NewMem()
		v := newVolatile(under, seed)
		build(v)
		for range seed % 17 {
			_, err := v.List(".")
			must(t, err)
		}
		left := under.ProcessCrash()
		if f, err := left.Open(name); err != nil {
			seen["-"]++
		} else {
			seen[fileContent(t, f)]++
		}
	}
	return seen
}

func TestVolatileForgetsNames(t *testing.T) {
	synced := func(v FS, name, content string) {
		f := create(t, v, name, content)
		must(t, f.Sync())
		must(t, f.Close())
		must(t, v.SyncDir("."))
	}
	replace := func(v FS) {
		synced(v, "f", "a")
		f := create(t, v, "tmp", "b")
		must(t, f.Sync())
		must(t, f.Close())
		must(t, v.Rename("tmp", "f"))
	}
	wantOutcomes(t, volatileOutcomes(t, func(v FS) { synced(v, "f", "a") }, "f"), "a")
	wantOutcomes(t, volatileOutcomes(t, func(v FS) { must(t, create(t, v, "f", "a").Sync()) }, "f"), "-", "a")
	wantOutcomes(t, volatileOutcomes(t, replace, "f"), "a", "b")
	wantOutcomes(t, volatileOutcomes(t, func(v FS) { replace(v); must(t, v.SyncDir(".")) }, "f"), "b")
	wantOutcomes(t, volatileOutcomes(t, func(v FS) { synced(v, "f", "a"); must(t, v.Remove("f")) }, "f"), "-", "a")
	wantOutcomes(t, volatileOutcomes(t, func(v FS) {
		must(t, v.MkdirAll("d"))
		must(t, create(t, v, "d/f", "a").Sync())
		must(t, v.SyncDir("d"))
	}, "d/f"), "-", "a")
}

func TestVolatileForgetsAndTearsBytes(t *testing.T) {
	a, b, zero := strings.Repeat("a", sectorBytes), strings.Repeat("b", sectorBytes), string(make([]byte, sectorBytes))
	base := func(v FS) File {
		f := create(t, v, "f", a+a)
		must(t, f.Sync())
		must(t, v.SyncDir("."))
		return f
	}
	write := func(f File, text string, at int64) {
		_, err := f.WriteAt([]byte(text), at)
		must(t, err)
	}
	wantOutcomes(t, volatileOutcomes(t, func(v FS) { write(base(v), b+b, 0) }, "f"), a+a, a+b, b+a, b+b)
	wantOutcomes(t, volatileOutcomes(t, func(v FS) { write(base(v), b, 2*sectorBytes) }, "f"), a+a, a+a+zero, a+a+b)
	wantOutcomes(t, volatileOutcomes(t, func(v FS) {
		f := base(v)
		write(f, b, 0)
		must(t, f.Sync())
		write(f, zero, sectorBytes)
	}, "f"), b+a, b+zero)
	wantOutcomes(t, volatileOutcomes(t, func(v FS) {
		f := base(v)
		must(t, f.Truncate(10))
		write(f, "x", sectorBytes)
	}, "f"), a+a, a[:10], a[:10]+zero[10:]+zero[:1], a[:10]+zero[10:]+"x")
}

func TestVolatileEmptiesFoldersFirst(t *testing.T) {
	v := newVolatile(OS(t.TempDir()), 1)
	v.eagerNames = 0
	must(t, v.MkdirAll("d"))
	must(t, create(t, v, "d/f", "a").Close())
	must(t, v.SyncDir("d"))
	must(t, v.SyncDir("."))
	must(t, v.Remove("d/f"))
	must(t, v.Remove("d"))
	must(t, v.SyncDir("."))
	list(t, v.under, ".", volatileHome)
}

func TestVolatileMovesFoldersInOrder(t *testing.T) {
	v := newVolatile(OS(t.TempDir()), 1)
	v.eagerNames = 0
	must(t, v.MkdirAll("x/d/y"))
	for _, dir := range []string{"x/d", "x", "."} {
		must(t, v.SyncDir(dir))
	}
	must(t, v.Rename("x/d/y", "y"))
	must(t, v.Rename("x", "y/x"))
	must(t, v.SyncDir("y"))
	must(t, v.SyncDir("."))
	list(t, v.under, "y", "x")
	wantErr(t, v.Rename("y", "y/x/y"), fs.ErrInvalid)
}

func TestVolatileIsBounded(t *testing.T) {
	v := newVolatile(NewMem(), 1)
	f := create(t, v, "f", "")
	for i := range int64(20) {
		must(t, f.WriteVecAt([][]byte{bytes.Repeat([]byte{byte(i)}, 1<<20)}, i<<20))
		must(t, create(t, v, fmt.Sprint("n", i), "").Close())
		if v.pending > maxPendingSectors || len(v.queue) > 2*maxPendingSectors+1025 {
			t.Fatalf("%d sectors are pending, %d queued", v.pending, len(v.queue))
		}
	}
	for i := range 2 * maxPendingChanges {
		must(t, v.Rename(fmt.Sprint("n", i%20), "moved"))
		must(t, v.Rename("moved", fmt.Sprint("n", i%20)))
		if len(v.changes) > maxPendingChanges {
			t.Fatalf("%d changes of names are pending", len(v.changes))
		}
	}
}

func TestVolatileFailsForGood(t *testing.T) {
	under := NewMem()
	v := newVolatile(under, 1)
	f := create(t, v, "f", "a")
	must(t, f.Sync())
	under.SetCapacity(0)
	must(t, f.WriteVecAt([][]byte{make([]byte, 3*pageBytes)}, 0))
	wantErr(t, f.Sync(), ErrNoSpace)
	under.SetCapacity(-1)
	wantErr(t, f.Sync(), ErrNoSpace)
	wantErr(t, v.SyncDir("."), ErrNoSpace)
}

// volatileModel makes the same calls on a Volatile and on a Mem.
type volatileModel struct {
	t     *testing.T
	rng   *rand.Rand
	v     *volatileFS
	ref   *Mem
	files []modelFile
	mods  map[*memNode]int // changes of content since the last sync; bounded, since Mem forgets old versions
	log   []string
}

type modelFile struct {
	v   File
	ref *memFile
}

// do makes a call on both; false means that the process is dead.
func (m *volatileModel) do(what string, onV, onRef func() error) bool {
	m.t.Helper()
	got := onV()
	m.log = append(m.log, fmt.Sprintf("%s: %v", what, got))
	if errors.Is(got, ErrCrashed) {
		return false
	}
	if want := onRef(); (got == nil) != (want == nil) || errors.Is(got, fs.ErrNotExist) != errors.Is(want, fs.ErrNotExist) {
		m.t.Fatalf("%s: got %v, want %v", what, got, want)
	}
	return m.v.failed == nil
}

func (m *volatileModel) name() string {
	return []string{"", "d/", "e/"}[m.rng.IntN(3)] + []string{"a", "b", "c"}[m.rng.IntN(3)]
}

func (m *volatileModel) step() bool {
	v, ref, name, other := m.v, m.ref, m.name(), m.name()
	both := func(what string, call func(FS) error) bool {
		return m.do(what, func() error { return call(v) }, func() error { return call(ref) })
	}
	if len(ref.changes) > 7 {
		dir := []string{".", "d", "e"}[m.rng.IntN(3)]
		return both("syncdir "+dir, func(disk FS) error { return disk.SyncDir(dir) })
	}
	switch m.rng.IntN(12) {
	case 0:
		return both("mkdir "+path.Dir(name), func(disk FS) error { return disk.MkdirAll(path.Dir(name)) })
	case 1, 2:
		return m.open("create "+name, func(disk FS) (File, error) { return disk.Create(name) })
	case 3:
		return m.open("open "+name, func(disk FS) (File, error) { return disk.Open(name) })
	case 4:
		if from, to := ref.find(name), ref.find(other); from != nil && from == to {
			return true // Mem removes a name, a real disk none
		}
		return both("rename "+name+" "+other, func(disk FS) error { return disk.Rename(name, other) })
	case 5:
		if ref.find("d") != nil && ref.find("e") == nil {
			return both("rename d e", func(disk FS) error { return disk.Rename("d", "e") })
		}
		return both("link "+name+" "+other, func(disk FS) error { return disk.Link(name, other) })
	case 6:
		if m.rng.IntN(3) == 0 {
			name = "d"
		}
		return both("remove "+name, func(disk FS) error { return disk.Remove(name) })
	case 7:
		dir := path.Dir(name)
		return both("syncdir "+dir, func(disk FS) error { return disk.SyncDir(dir) })
	}
	return len(m.files) == 0 || m.content(m.rng.IntN(len(m.files)))
}

func (m *volatileModel) open(what string, call func(FS) (File, error)) bool {
	var f modelFile
	ok := m.do(what, func() (err error) { f.v, err = call(m.v); return err }, func() error {
		file, err := call(m.ref)
		f.ref, _ = file.(*memFile)
		return err
	})
	if f.v != nil && f.ref != nil {
		m.files = append(m.files, f)
	}
	return ok
}

func (m *volatileModel) content(i int) bool {
	f := m.files[i]
	both := func(what string, call func(File) error) bool {
		what = fmt.Sprintf("%s %s", what, f.ref.name)
		return m.do(what, func() error { return call(f.v) }, func() error { return call(f.ref) })
	}
	op := m.rng.IntN(7)
	if op > 1 && m.mods[f.ref.node] >= 3 {
		op = 0
	}
	m.mods[f.ref.node]++
	switch op {
	case 0:
		m.mods[f.ref.node] = 0
		return both("sync", File.Sync)
	case 1:
		m.mods[f.ref.node]--
		m.files = slices.Delete(m.files, i, i+1)
		return both("close", File.Close)
	case 2:
		size := m.rng.Int64N(6000)
		return both(fmt.Sprint("truncate to ", size), func(f File) error { return f.Truncate(size) })
	case 3:
		off, length := m.rng.Int64N(3000), 1+m.rng.Int64N(3000)
		return both(fmt.Sprint("allocate ", off, "+", length), func(f File) error { return f.Allocate(off, length) })
	}
	off, text := m.rng.Int64N(5000), bytes.Repeat([]byte{byte('a' + len(m.log)%26)}, 1+m.rng.IntN(2500))
	return both(fmt.Sprint("write ", off, "+", len(text)), func(f File) error {
		return f.WriteVecAt([][]byte{text[:len(text)/3], text[len(text)/3:]}, off)
	})
}

// same compares what is seen on both.
func (m *volatileModel) same() {
	m.t.Helper()
	for _, dir := range []string{".", "d", "e"} {
		got, err := m.v.List(dir)
		want, wantErr := m.ref.List(dir)
		if (err == nil) != (wantErr == nil) || !slices.Equal(got, want) {
			m.t.Fatalf("%s holds %v (%v), want %v (%v)", dir, got, err, want, wantErr)
		}
	}
	for _, f := range m.files {
		got, want := make([]byte, 9000), make([]byte, 9000)
		n, err := f.v.ReadAt(got, 0)
		k, wantErr := f.ref.ReadAt(want, 0)
		if !errors.Is(err, ErrCrashed) && (n != k || err != wantErr || !bytes.Equal(got, want)) {
			m.t.Fatalf("%s reads %d bytes (%v), want %d (%v), equal %t", f.ref.name, n, err, k, wantErr, bytes.Equal(got, want))
		}
	}
}

// judge demands that left is a state that a power cut could make of the model.
func (m *volatileModel) judge(left *Mem) {
	m.t.Helper()
	for mask := range 1 << len(m.ref.changes) {
		kept := durableNames{}
		for i, c := range m.ref.changes {
			if mask&(1<<i) != 0 {
				kept.keep(c)
			}
		}
		if kept.matches(m.ref.root, left.root, true) {
			return
		}
	}
	var found []string
	var walk func(dir string)
	walk = func(dir string) {
		names, err := left.List(dir)
		must(m.t, err)
		for _, name := range names {
			if n := left.find(path.Join(dir, name)); n.dir != nil {
				walk(path.Join(dir, name))
			} else {
				found = append(found, fmt.Sprintf("%s of %d bytes", path.Join(dir, name), n.size))
			}
		}
	}
	walk(".")
	m.t.Fatalf("no power cut leaves %q; %d changes of names were not synced", found, len(m.ref.changes))
}

// durableNames is what is durable of folders if some of the changes are.
type durableNames map[*memNode]map[string]*memNode

func (d durableNames) of(dir *memNode) map[string]*memNode {
	if d[dir] == nil {
		d[dir] = maps.Clone(dir.durable)
	}
	return d[dir]
}

func (d durableNames) keep(c *nameChange) {
	for _, e := range c.edits {
		if e.node == nil {
			delete(d.of(e.dir), e.name)
		} else {
			d.of(e.dir)[e.name] = e.node
		}
	}
}

func (d durableNames) matches(want, left *memNode, root bool) bool {
	if want.dir == nil || left.dir == nil {
		return want.dir == nil && left.dir == nil && couldBe(&want.inode, &left.inode)
	}
	names := d.of(want)
	count := len(left.dir)
	if root && left.dir[volatileHome] != nil {
		count--
	}
	if count != len(names) {
		return false
	}
	for name, node := range names {
		if left.dir[name] == nil || !d.matches(node, left.dir[name], false) {
			return false
		}
	}
	return true
}

// couldBe reports whether a power cut could leave left of n: its size, and each sector, as they once were since the
// last sync. Besides, a sector may have been cut at one of the sizes before it got what was written to it until then.
func couldBe(n, left *inode) bool {
	if !slices.Contains(n.sizes, left.size) {
		return false
	}
	sector := func(p *page, in, end int64) []byte {
		if p == nil {
			p = zeroPage
		}
		return p[in:end]
	}
	for off := int64(0); off < left.size; off += sectorBytes {
		i, in := off/pageBytes, off%pageBytes
		end := in + min(sectorBytes, left.size-off)
		versions := n.dirty[i]
		if versions == nil {
			versions = []*page{n.pages[i]}
		}
		got := sector(left.pages[i], in, end)
		if !slices.ContainsFunc(versions, func(p *page) bool {
			version := sector(p, in, end)
			return bytes.Equal(version, got) || slices.ContainsFunc(n.sizes, func(size int64) bool {
				cut := slices.Clone(version)
				clear(cut[min(int64(len(cut)), max(0, size-off)):])
				return bytes.Equal(cut, got)
			})
		}) {
			return false
		}
	}
	return true
}

func TestVolatileAgainstModel(t *testing.T) {
	seeds := uint64(1500)
	if testing.Short() {
		seeds = 300
	}
	first := uint64(1)
	if *oneSeed != 0 {
		first, seeds = *oneSeed, 1
	}
	for seed := first; seed < first+seeds; seed++ {
		volatileRun(t, seed)
	}
}

func volatileRun(t *testing.T, seed uint64) {
	under := NewMem()
	m := &volatileModel{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), v: newVolatile(under, seed), ref: NewMem(), mods: make(map[*memNode]int),
	}
	defer func() {
		if t.Failed() {
			t.Logf("-seed=%d\n%s", seed, strings.Join(m.log, "\n"))
		}
	}()
	steps := 1 + m.rng.IntN(80)
	if m.rng.IntN(2) == 0 {
		under.CrashAfter(1 + m.rng.IntN(120))
	}
	for range steps {
		if !m.step() {
			break
		}
		m.same()
		if m.v.failed != nil {
			break
		}
	}
	if failed := m.v.failed; failed != nil && !errors.Is(failed, ErrCrashed) {
		t.Fatal(failed)
	}
	left := under.ProcessCrash()
	m.judge(left)

	next := newVolatile(left, seed)
	must(t, next.MkdirAll("."))
	lock, err := next.Lock("LOCK")
	must(t, err)
	must(t, lock.Close())
	if homes, err := left.List(volatileHome); err == nil && len(homes) > 0 {
		t.Fatalf("what the dead left is still there: %v", homes)
	}
	must(t, next.Remove("LOCK"))
	must(t, next.SyncDir("."))
	m.judge(left)
}
