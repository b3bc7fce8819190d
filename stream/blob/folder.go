package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/internal/vfs"
)

const (
	stagedDir  = ".strandline-staged"
	partSuffix = ".part"
	copyBytes  = 1 << 20
)

// folder is a Store in a local folder. A staged block is a file of its own in a hidden folder; Commit writes them
// together and publishes the result with link(2), which never replaces. It keeps no metadata, so Props has a checksum.
// Disk calls cannot be interrupted: a context is looked at before them.
type folder struct {
	fs     vfs.FS
	where  string
	random func(p []byte)
}

// NewFolder returns the store in a file system's root; where names it in messages. Any number of processes may use one
// folder at a time. random fills the names of files being written; nil uses crypto/rand.
func NewFolder(fsys vfs.FS, where string, random func(p []byte)) Store {
	if random == nil {
		random = cryptoRandom
	}
	return &folder{fs: fsys, where: where, random: random}
}

func (d *folder) String() string { return d.where }

func (d *folder) error(op, name string, err error) error {
	e := &StoreError{Kind: ErrTemporary, Op: op, Name: name, Where: d.where, Err: err}
	switch {
	case errors.Is(err, vfs.ErrNoSpace):
		e.Advice = "free space on that disk"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Kind, e.Advice = ErrRefused, "let this user read and write that folder"
	case errors.Is(err, fs.ErrInvalid):
		e.Kind = ErrInvalid
	}
	return e
}

func (d *folder) kind(kind error, op, name string) error {
	return &StoreError{Kind: kind, Op: op, Name: name, Where: d.where}
}

// begin refuses a call whose context has ended and names that are not for blobs.
func (d *folder) begin(ctx context.Context, op, name string) error {
	if ctx.Err() != nil {
		return d.error(op, name, context.Cause(ctx))
	}
	if name == "." || !fs.ValidPath(name) || strings.ContainsAny(name, `\:`) || strings.HasPrefix(name, ".strandline") {
		return d.kind(ErrInvalid, op, name)
	}
	return nil
}

func (d *folder) Ensure(ctx context.Context) error {
	if err := d.begin(ctx, "make folder", "x"); err != nil {
		return err
	}
	err := d.fs.MkdirAll(stagedDir)
	if err == nil {
		err = d.fs.SyncDir(".")
	}
	if err != nil {
		return d.error("make folder", "", err)
	}
	return nil
}

// stagedPrefix starts the file names of all that is staged for a blob.
func stagedPrefix(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16]) + "-"
}

func stagedFile(name string, id BlockID) string {
	return stagedDir + "/" + stagedPrefix(name) + id.String()
}

// Stage writes a file under a name of its own and renames it, so that a block is whole or not there.
func (d *folder) Stage(ctx context.Context, name string, id BlockID, data []byte) error {
	if err := d.begin(ctx, "stage", name); err != nil {
		return err
	}
	if len(data) == 0 {
		return d.error("stage", name, fmt.Errorf("no content: %w", fs.ErrInvalid))
	}
	part, err := d.writePart(name, func(f vfs.File) error {
		_, err := f.WriteAt(data, 0)
		return err
	})
	if err == nil {
		failpoint.Hit("folder.part")
		if err = d.fs.Rename(part, stagedFile(name, id)); err != nil {
			d.fs.Remove(part)
		}
	}
	if err == nil {
		failpoint.Hit("folder.staged")
		if !mutant.On("staged names not synced") {
			err = d.fs.SyncDir(stagedDir)
		}
	}
	if err != nil {
		return d.error("stage", name, err)
	}
	return nil
}

// writePart makes a new file beside the staged blocks of name, lets write fill it, and syncs it. A part that a crash
// leaves goes when the blob is committed. The name is random and not, say, a counter: another process may drop the part
// at any time, and what is renamed or linked afterwards must not be a third one's half-written file.
func (d *folder) writePart(name string, write func(vfs.File) error) (part string, err error) {
	var random [8]byte
	d.random(random[:])
	part = stagedDir + "/" + stagedPrefix(name) + hex.EncodeToString(random[:]) + partSuffix
	f, err := d.fs.Create(part)
	if errors.Is(err, fs.ErrNotExist) {
		if err := errors.Join(d.fs.MkdirAll(stagedDir), d.fs.SyncDir(".")); err != nil {
			return "", err
		}
		f, err = d.fs.Create(part)
	}
	if err != nil {
		return "", err
	}
	err = write(f)
	if err == nil && !mutant.On("parts not synced") {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		d.fs.Remove(part)
		return "", err
	}
	return part, nil
}

// Commit publishes and then drops what is staged under name. A process that dies in between leaves staged files behind:
// the repetition of the call, which finds the blob there, drops them.
func (d *folder) Commit(ctx context.Context, name string, blocks []BlockID, _ map[string]string) error {
	if err := d.begin(ctx, "commit", name); err != nil {
		return err
	}
	if len(blocks) > MaxBlocksPerBlob {
		return d.error("commit", name, fmt.Errorf("%d blocks: %w", len(blocks), fs.ErrInvalid))
	}
	exists, err := d.exists(name)
	if err != nil {
		return d.error("commit", name, err)
	}
	if exists && !mutant.On("a commit replaces") {
		return d.refuse(name, blocks)
	}
	part, err := d.writePart(name, func(f vfs.File) error { return d.assemble(f, name, blocks) })
	if errors.Is(err, errNotStaged) {
		return d.kind(ErrBlockList, "commit", name)
	}
	if err != nil {
		return d.error("commit", name, err)
	}
	err = d.fs.MkdirAll(path.Dir(name))
	if err == nil {
		failpoint.Hit("folder.assembled")
		err = d.fs.Link(part, name)
		if errors.Is(err, fs.ErrExist) && mutant.On("a commit replaces") {
			err = d.fs.Rename(part, name)
		}
	}
	d.fs.Remove(part)
	if errors.Is(err, fs.ErrExist) {
		return d.refuse(name, blocks)
	}
	if err == nil {
		failpoint.Hit("folder.linked")
		if !mutant.On("published name not synced") {
			err = d.syncPath(name)
		}
	}
	if err != nil {
		return d.error("commit", name, err)
	}
	return d.drop(name)
}

// refuse is Commit on a name that is taken. The other blob may be ours, published by a process that died before it had
// dropped what was staged: so drop if the content is the listed blocks', or if some of them are gone, which only a
// commit of this name does. The name must be durable first: that process may have died before it was.
func (d *folder) refuse(name string, blocks []BlockID) error {
	size, sum, err := d.checksum(name)
	if err != nil {
		return d.error("commit", name, err)
	}
	staged := &checksum{}
	err = d.assemble(staged, name, blocks)
	if errors.Is(err, errNotStaged) || err == nil && staged.size == size && staged.sum == sum {
		if err = nil; !mutant.On("blocks dropped before the name is durable") {
			err = d.syncPath(name)
		}
		if err == nil {
			err = d.drop(name)
		}
	}
	if err != nil {
		return d.error("commit", name, err)
	}
	return d.kind(ErrExists, "commit", name)
}

var errNotStaged = errors.New("a block is not staged")

// assemble writes the staged blocks one after another.
func (d *folder) assemble(w io.WriterAt, name string, blocks []BlockID) error {
	off := int64(0)
	var buf []byte
	for _, id := range blocks {
		f, err := d.fs.Open(stagedFile(name, id))
		if errors.Is(err, fs.ErrNotExist) {
			return errNotStaged
		}
		if err != nil {
			return err
		}
		n, err := copyAt(w, off, f, &buf)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// copyAt copies all of f to w at off, through *buf, which it makes as large as it needs.
func copyAt(w io.WriterAt, off int64, f vfs.File, buf *[]byte) (int64, error) {
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	if n := min(size, copyBytes); int64(len(*buf)) < n {
		*buf = make([]byte, n)
	}
	for done := int64(0); done < size; {
		p := (*buf)[:min(int64(len(*buf)), size-done)]
		if n, err := f.ReadAt(p, done); n < len(p) {
			return 0, errors.Join(io.ErrUnexpectedEOF, err)
		}
		if _, err := w.WriteAt(p, off+done); err != nil {
			return 0, err
		}
		done += int64(len(p))
	}
	return size, nil
}

// checksum is a writer that keeps only the length and the CRC-32C of what is written to it in order.
type checksum struct {
	size int64
	sum  uint32
}

func (c *checksum) WriteAt(p []byte, off int64) (int, error) {
	c.size += int64(len(p))
	c.sum = crc32.Update(c.sum, castagnoli, p)
	return len(p), nil
}

func (d *folder) checksum(name string) (size int64, sum uint32, err error) {
	f, err := d.fs.Open(name)
	if err != nil {
		return 0, 0, err
	}
	c := &checksum{}
	_, err = copyAt(c, 0, f, new([]byte))
	return c.size, c.sum, errors.Join(err, f.Close())
}

// syncPath makes the name durable: every folder on the way may be new.
func (d *folder) syncPath(name string) error {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if err := d.fs.SyncDir(dir); err != nil {
			return err
		}
		if dir == "." {
			return nil
		}
	}
}

// drop removes all that is staged for name, for good: after the next token nobody looks for it.
func (d *folder) drop(name string) error {
	names, err := d.fs.List(stagedDir)
	for _, n := range names {
		if !strings.HasPrefix(n, stagedPrefix(name)) {
			continue
		}
		if e := d.fs.Remove(stagedDir + "/" + n); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		failpoint.Hit("folder.dropping")
	}
	if err == nil {
		err = d.fs.SyncDir(stagedDir)
	}
	if err != nil {
		return d.error("commit", name, err)
	}
	return nil
}

// open opens a published file; an error for which errors.Is(err, ErrNotFound) holds if there is none, or a folder.
func (d *folder) open(op, name string) (vfs.File, error) {
	f, err := d.fs.Open(name)
	if err == nil {
		return f, nil
	}
	_, listErr := d.fs.List(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || listErr == nil {
		return nil, d.kind(ErrNotFound, op, name)
	}
	return nil, d.error(op, name, err)
}

func (d *folder) exists(name string) (bool, error) {
	f, err := d.open("look at", name)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// Props syncs the name first: it may have been published by a process that died, or whose sync failed.
func (d *folder) Props(ctx context.Context, name string) (Props, error) {
	if err := d.begin(ctx, "look at", name); err != nil {
		return Props{}, err
	}
	f, err := d.open("look at", name)
	if err != nil {
		return Props{}, err
	}
	f.Close()
	if !mutant.On("what a look finds not synced") {
		err = d.syncPath(name)
	}
	var size int64
	var sum uint32
	if err == nil {
		size, sum, err = d.checksum(name)
	}
	if err != nil {
		return Props{}, d.error("look at", name, err)
	}
	return Props{SizeBytes: size, HasChecksum: true, Checksum: sum}, nil
}

func (d *folder) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := d.begin(ctx, "read", name); err != nil {
		return nil, err
	}
	f, err := d.open("read", name)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, d.error("read", name, errors.Join(err, f.Close()))
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, 0, size), f}, nil
}

func (d *folder) Delete(ctx context.Context, name string) error {
	if err := d.begin(ctx, "delete", name); err != nil {
		return err
	}
	exists, err := d.exists(name)
	if err != nil {
		return d.error("delete", name, err)
	}
	if !exists {
		return d.kind(ErrNotFound, "delete", name)
	}
	if err := errors.Join(d.fs.Remove(name), d.fs.SyncDir(path.Dir(name))); err != nil {
		return d.error("delete", name, err)
	}
	return nil
}

func (d *folder) List(ctx context.Context, prefix string, visit func(Entry) error) error {
	if err := d.begin(ctx, "list", prefix+"x"); err != nil {
		return err
	}
	dir := "."
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		dir = prefix[:i]
	}
	all, err := d.walk(ctx, nil, dir, prefix)
	if err != nil {
		return d.error("list", prefix, err)
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range all {
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

// walk appends the files below dir whose names start with prefix.
func (d *folder) walk(ctx context.Context, all []Entry, dir, prefix string) ([]Entry, error) {
	names, err := d.fs.List(dir)
	if err != nil || ctx.Err() != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return all, nil
		}
		return nil, errors.Join(err, context.Cause(ctx))
	}
	for _, n := range names {
		name := path.Join(dir, n)
		if name == stagedDir || !strings.HasPrefix(name, prefix) && !strings.HasPrefix(prefix, name+"/") {
			continue
		}
		f, err := d.open("list", name)
		switch {
		case err == nil:
			size, err := f.Size()
			if err = errors.Join(err, f.Close()); err != nil {
				return nil, err
			}
			all = append(all, Entry{Name: name, SizeBytes: size})
		case errors.Is(err, ErrNotFound):
			if all, err = d.walk(ctx, all, name, prefix); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
	}
	return all, nil
}

func (d *folder) Uncommitted(ctx context.Context, name string) ([]string, error) {
	if err := d.begin(ctx, "list blocks of", name); err != nil {
		return nil, err
	}
	names, err := d.fs.List(stagedDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, d.error("list blocks of", name, err)
	}
	var ids []string
	for _, n := range names {
		block, ok := strings.CutPrefix(n, stagedPrefix(name))
		if !ok || strings.HasSuffix(n, partSuffix) {
			continue
		}
		id, err := hex.DecodeString(block)
		if err != nil {
			continue
		}
		ids = append(ids, string(id))
	}
	return ids, nil
}
