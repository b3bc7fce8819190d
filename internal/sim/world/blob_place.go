package world

import (
	"context"
	"errors"
	"io"

	"github.com/strandline-io/strandline/internal/vfs"
	"github.com/strandline-io/strandline/stream/blob"
)

// blobPlace is a store of blobs that processes share, and what goes wrong with it.
type blobPlace struct {
	*World
	service    *blobService // nil if the store is a folder
	files      *vfs.Mem     // of the folder
	calm       bool
	badPercent int            // of calls of the service
	longestUs  int64          // that a message is on its way
	diskFaults map[vfs.Op]int // how many calls later one fails
	hooks      blobHooks
}

// blobHooks are told what happens at a place.
type blobHooks interface {
	// inCall is called by a process within each call of its store, and does not return if that is its last.
	inCall(r *blobRuntime)
	// linked is called by a process that has just given a file of the folder its name.
	linked(r *blobRuntime)
	// published is called when a blob has become visible, checkBlocks before a block list is put.
	published(name string)
	checkBlocks(name string, blocks int)
}

func newBlobPlace(w *World, hooks blobHooks) *blobPlace {
	return &blobPlace{World: w, files: vfs.NewMem(), diskFaults: map[vfs.Op]int{}, longestUs: 600 * secondInUs, hooks: hooks}
}

// storeOf is the store as a process sees it.
func (p *blobPlace) storeOf(r *blobRuntime) blob.Store {
	if p.service == nil {
		return blob.NewFolder(&blobDisk{p.files, p, r}, "folder", p.randomBytes)
	}
	return &blobClient{p.service, r}
}

// reader is the store as a reader sees it, to whom no time passes.
func (p *blobPlace) reader() blob.Store {
	if p.service == nil {
		return blob.NewFolder(p.files, "folder", p.randomBytes)
	}
	return p.service.store
}

func (p *blobPlace) content(name string) []byte {
	r, err := p.reader().Read(context.Background(), name)
	if err != nil {
		p.fail("reader: %s: %v", name, err)
	}
	data, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		p.fail("reader: %s: %v", name, err)
	}
	return data
}

func (p *blobPlace) randomBytes(b []byte) {
	for i := range b {
		b[i] = byte(p.Uint32())
	}
}

// cutPower forgets what the folder's machine had not synced.
func (p *blobPlace) cutPower() {
	if seed := p.Uint64(); p.chance(50) {
		p.files = p.files.PowerLossTorn(seed, 512)
	} else {
		p.files = p.files.PowerLoss(seed)
	}
	p.stats.Blobs.PowerLosses++
	p.tracef("the power is lost")
}

// failDisk lets a call of the disk fail.
func (p *blobPlace) failDisk() {
	ops := []vfs.Op{vfs.OpWrite, vfs.OpCreate, vfs.OpRename, vfs.OpRemove, vfs.OpSyncDir, vfs.OpSync, vfs.OpRead, vfs.OpOpen}
	op := ops[p.IntN(len(ops))]
	p.diskFaults[op] = 1 + p.IntN(10)
	p.tracef("call %d of the disk will fail", op)
}
