// Package blobtest has a block blob service in memory with Azure's rules and faults, and the contract suite that every
// blob.Store passes.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/strandline-io/strandline/stream/blob"
)

// Fault is what happens to one call.
type Fault int

const (
	None        Fault = iota
	Busy              // 503: not carried out, and the caller knows nothing
	LoseRequest       // never arrives; the caller sees a timeout
	LoseReply         // carried out; the caller sees a timeout
	Late              // the caller sees a timeout; carried out when Land says so
	Hang              // never arrives; the call lasts as long as its context
	HangDone          // carried out; the call lasts as long as its context
)

// Call is one request to the service.
type Call struct {
	Client string
	Op     string // "ensure", "stage", "commit", "props", "read", "list", "delete", "uncommitted"
	Name   string
	N      int // of all calls, from 0
}

// Fake is a block blob service in memory. It shares the uncommitted blocks of a name among all writers, overwrites
// equal ids, refuses ids of different lengths under one name, more than MaxUncommitted blocks and too much metadata,
// never replaces a blob, and drops unlisted blocks when a list is put. Calls may overlap.
type Fake struct {
	// MaxUncommitted is Azure's 100,000 unless set lower, before use.
	MaxUncommitted int

	mu     sync.Mutex
	names  map[string]*object
	late   []func()
	faults func(Call) Fault
	dead   map[string]bool
	calls  int
}

type object struct {
	visible  bool
	content  []byte
	metadata map[string]string
	staged   map[string][]byte
}

// NewFake returns an empty service.
func NewFake() *Fake {
	return &Fake{MaxUncommitted: blob.MaxUncommittedBlocks, names: map[string]*object{}, dead: map[string]bool{}}
}

// Client is the service as one process sees it.
func (f *Fake) Client(name string) blob.Store { return &client{fake: f, name: name} }

// SetFaults makes decide be asked for each call; nil ends it. It is called with the service locked.
func (f *Fake) SetFaults(decide func(Call) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = decide
}

// Kill makes every later call of a client fail without arriving. What is late still lands.
func (f *Fake) Kill(client string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead[client] = true
}

// Late is how many requests are on their way.
func (f *Fake) Late() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.late)
}

// Land carries out the i-th late request.
func (f *Fake) Land(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do := f.late[i]
	f.late = slices.Delete(f.late, i, i+1)
	do()
}

// Calls is how many calls there were.
func (f *Fake) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Expire drops all uncommitted blocks of name, as Azure does seven days after the last one was staged.
func (f *Fake) Expire(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.object(name).staged = map[string][]byte{}
}

// StageRaw stages a block under any id, as another program would.
func (f *Fake) StageRaw(name, id string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stage(name, id, data)
}

// Put makes a visible blob that no Strandline writer made.
func (f *Fake) Put(name string, content []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.object(name)
	o.visible, o.content, o.metadata = true, bytes.Clone(content), nil
}

// Visible returns all visible blobs.
func (f *Fake) Visible() map[string][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string][]byte{}
	for name, o := range f.names {
		if o.visible {
			all[name] = o.content
		}
	}
	return all
}

func (f *Fake) object(name string) *object {
	o := f.names[name]
	if o == nil {
		o = &object{staged: map[string][]byte{}}
		f.names[name] = o
	}
	return o
}

func (f *Fake) error(kind error, op, name string, err error) error {
	return &blob.StoreError{Kind: kind, Op: op, Name: name, Where: "fake", Err: err}
}

// call runs do, or what the fault of this call makes of it.
func (f *Fake) call(ctx context.Context, client, op, name string, do func() error) error {
	f.mu.Lock()
	fault := None
	if f.faults != nil {
		fault = f.faults(Call{Client: client, Op: op, Name: name, N: f.calls})
	}
	if f.dead[client] {
		fault = LoseRequest
	}
	f.calls++
	if ctx.Err() != nil {
		f.mu.Unlock()
		return f.error(blob.ErrTemporary, op, name, context.Cause(ctx))
	}
	var err error
	switch fault {
	case None:
		err = do()
	case Busy:
		err = f.error(blob.ErrTemporary, op, name, errors.New("503 ServerBusy"))
	case LoseReply, HangDone:
		do()
		err = f.error(blob.ErrTemporary, op, name, errors.New("timeout"))
	case Late:
		f.late = append(f.late, func() { do() })
		err = f.error(blob.ErrTemporary, op, name, errors.New("timeout"))
	default:
		err = f.error(blob.ErrTemporary, op, name, errors.New("timeout"))
	}
	f.mu.Unlock()
	if fault == Hang || fault == HangDone {
		<-ctx.Done()
		return f.error(blob.ErrTemporary, op, name, context.Cause(ctx))
	}
	return err
}

func (f *Fake) stage(name, id string, data []byte) error {
	o := f.object(name)
	switch {
	case len(id) == 0 || len(id) > blob.MaxBlockIDBytes:
		return f.error(blob.ErrInvalid, "stage", name, fmt.Errorf("InvalidQueryParameterValue: block id of %d bytes", len(id)))
	case len(data) == 0:
		return f.error(blob.ErrInvalid, "stage", name, errors.New("InvalidHeaderValue: no content"))
	}
	for other := range o.staged {
		if len(other) != len(id) {
			return f.error(blob.ErrInvalid, "stage", name, errors.New("InvalidBlobOrBlock: ids of different lengths"))
		}
		break
	}
	if _, again := o.staged[id]; !again && len(o.staged) >= f.MaxUncommitted {
		return f.error(blob.ErrBlockCount, "stage", name, errors.New("BlockCountExceedsLimit"))
	}
	o.staged[id] = bytes.Clone(data)
	return nil
}

func (f *Fake) commit(name string, blocks []blob.BlockID, metadata map[string]string) error {
	o := f.object(name)
	if o.visible {
		return f.error(blob.ErrExists, "commit", name, errors.New("BlobAlreadyExists"))
	}
	if len(blocks) > blob.MaxBlocksPerBlob {
		return f.error(blob.ErrInvalid, "commit", name, errors.New("BlockListTooLong"))
	}
	if err := checkMetadata(metadata); err != nil {
		return f.error(blob.ErrInvalid, "commit", name, err)
	}
	var content []byte
	for _, id := range blocks {
		data, ok := o.staged[string(id[:])]
		if !ok {
			return f.error(blob.ErrBlockList, "commit", name, errors.New("InvalidBlockList"))
		}
		content = append(content, data...)
	}
	o.visible, o.content, o.metadata = true, content, map[string]string{}
	for k, v := range metadata {
		o.metadata[strings.ToLower(k)] = v
	}
	o.staged = map[string][]byte{}
	return nil
}

// checkMetadata refuses what Azure refuses: names that are no C# identifiers, values that are no header text, too much.
func checkMetadata(metadata map[string]string) error {
	size := 0
	for k, v := range metadata {
		size += len(k) + len(v)
		for i, r := range k {
			letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
			if !letter && (i == 0 || r < '0' || r > '9') {
				return fmt.Errorf("InvalidMetadata: name %q", k)
			}
		}
		for _, r := range v {
			if r < ' ' || r > '~' {
				return fmt.Errorf("InvalidMetadata: value %q", v)
			}
		}
		if k == "" {
			return errors.New("EmptyMetadataKey")
		}
	}
	if size > blob.MaxMetadataBytes {
		return fmt.Errorf("MetadataTooLarge: %d bytes", size)
	}
	return nil
}

type client struct {
	fake *Fake
	name string
}

var _ blob.Store = (*client)(nil)

func (c *client) String() string { return "fake" }

func (c *client) Ensure(ctx context.Context) error {
	return c.fake.call(ctx, c.name, "ensure", "", func() error { return nil })
}

func (c *client) Stage(ctx context.Context, name string, id blob.BlockID, data []byte) error {
	data = bytes.Clone(data)
	return c.fake.call(ctx, c.name, "stage", name, func() error { return c.fake.stage(name, string(id[:]), data) })
}

func (c *client) Commit(ctx context.Context, name string, blocks []blob.BlockID, metadata map[string]string) error {
	blocks = slices.Clone(blocks)
	return c.fake.call(ctx, c.name, "commit", name, func() error { return c.fake.commit(name, blocks, metadata) })
}

// visible runs do on a visible blob.
func (c *client) visible(ctx context.Context, op, name string, do func(*object)) error {
	return c.fake.call(ctx, c.name, op, name, func() error {
		o := c.fake.object(name)
		if !o.visible {
			return c.fake.error(blob.ErrNotFound, op, name, errors.New("BlobNotFound"))
		}
		do(o)
		return nil
	})
}

func (c *client) Props(ctx context.Context, name string) (p blob.Props, err error) {
	err = c.visible(ctx, "props", name, func(o *object) {
		p = blob.Props{SizeBytes: int64(len(o.content)), Metadata: o.metadata}
	})
	return p, err
}

func (c *client) Read(ctx context.Context, name string) (r io.ReadCloser, err error) {
	err = c.visible(ctx, "read", name, func(o *object) { r = io.NopCloser(bytes.NewReader(o.content)) })
	return r, err
}

func (c *client) Delete(ctx context.Context, name string) error {
	return c.visible(ctx, "delete", name, func(o *object) { o.visible, o.content, o.metadata = false, nil, nil })
}

func (c *client) List(ctx context.Context, prefix string, visit func(blob.Entry) error) error {
	var all []blob.Entry
	err := c.fake.call(ctx, c.name, "list", prefix, func() error {
		for name, o := range c.fake.names {
			if o.visible && strings.HasPrefix(name, prefix) {
				all = append(all, blob.Entry{Name: name, SizeBytes: int64(len(o.content))})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b blob.Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range all {
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) Uncommitted(ctx context.Context, name string) (ids []string, err error) {
	err = c.fake.call(ctx, c.name, "uncommitted", name, func() error {
		ids = slices.Sorted(maps.Keys(c.fake.object(name).staged))
		return nil
	})
	return ids, err
}

// Checksum is the CRC-32C that a store without metadata reports.
func Checksum(content []byte) uint32 {
	return crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))
}
