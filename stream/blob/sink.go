package blob

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/stream"
)

// Sink is a stream.Sink that writes Avro files into a Store, as <stream>/<task number>/yyyy/MM/dd/HH/mm-ss-<n>.avro.
// Values are Go structs or maps that fit the configured schema, Record, or Encoded; keys are not written.
type Sink struct {
	name    string
	store   Store
	cfg     Config
	invalid error
	slots   Slots
	buffers buffers
	taken   names
}

// maxTaken bounds the memory of names that were found taken.
const maxTaken = 1000

// names is a small set.
type names struct {
	mu  sync.Mutex
	set map[string]bool
}

// add puts a name into the set and reports whether it was there.
func (n *names) add(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.set[name] {
		return true
	}
	if n.set == nil || len(n.set) >= maxTaken {
		n.set = map[string]bool{}
	}
	n.set[name] = true
	return false
}

var (
	_ stream.Sink       = (*Sink)(nil)
	_ stream.RunChecker = (*Sink)(nil)
)

// New makes a sink. name is the sink's, stable and unique in the job. What is wrong with the options is returned by
// Check and Open.
func New(name string, store Store, options ...Option) *Sink {
	var cfg Config
	for _, o := range options {
		o(&cfg)
	}
	s := &Sink{name: name, store: store, cfg: cfg.withDefaults(name)}
	s.invalid = s.cfg.validate(name)
	if s.invalid == nil {
		s.slots = s.cfg.Runtime.Slots(s.cfg.Uploads)
		s.buffers.keep = s.cfg.Uploads + 1
	}
	return s
}

// Name is the sink's name.
func (s *Sink) Name() string { return s.name }

// Store is where the sink writes.
func (s *Sink) Store() Store { return s.store }

func (s *Sink) calls() caller { return caller{cfg: &s.cfg, tries: s.cfg.Tries} }

// checkTries keeps a start with a wrong address from waiting as long as a running job would.
const checkTries = 3

// Check makes the container or folder if it is missing, and claims the sink's stream for this job and run with a
// create-only owner file. *OwnerError: it belongs to another.
func (s *Sink) Check(ctx context.Context, job stream.JobIdentity) error {
	if s.invalid != nil {
		return s.invalid
	}
	c := s.calls()
	c.tries = min(c.tries, checkTries)
	if err := c.repeat(ctx, s.store.Ensure); err != nil {
		return err
	}
	return s.claim(ctx, c, Owner{Version: 1, Job: job.Job, Run: job.Run, Sink: s.name})
}

// CheckRun finds the owner file that Check has made for this job and run. *LostError: there is none. Blobs are not looked
// for: whoever consumes them may move them away.
func (s *Sink) CheckRun(ctx context.Context, job stream.JobIdentity, rows int64) error {
	if s.invalid != nil {
		return s.invalid
	}
	c := s.calls()
	c.tries = min(c.tries, checkTries)
	me := Owner{Version: 1, Job: job.Job, Run: job.Run, Sink: s.name}
	name := s.cfg.Stream + "/" + ownerFile
	have, err := s.owner(ctx, c, name)
	switch {
	case err != nil && kindOf(err) == ErrNotFound:
		return &LostError{Store: s.store.String(), Name: name, Owner: me, Rows: rows}
	case err == nil && *have != me && !mutant.On("another's prefix taken"):
		return &OwnerError{Store: s.store.String(), Name: name, Have: *have, Want: me}
	}
	return err
}

// Open makes the writer of one task. It does not touch the store.
func (s *Sink) Open(_ context.Context, task stream.SinkTask) (stream.SinkWriter, error) {
	if s.invalid != nil {
		return nil, s.invalid
	}
	who := identity{job: task.Job, run: task.Run, sink: s.name, task: task.Task}
	if err := who.check(); err != nil {
		return nil, err
	}
	return newWriter(s, who, task.TaskNumber), nil
}

// Owner is the content of the owner file.
type Owner struct {
	Version int    `json:"version"`
	Job     string `json:"job"`
	Run     string `json:"run"`
	Sink    string `json:"sink"`
}

func (o Owner) String() string { return fmt.Sprintf("job %q, run %q, sink %q", o.Job, o.Run, o.Sink) }

const maxOwnerBytes = 64 << 10

// claim makes the owner file, or finds it made by the same owner. Several starters may do so at once: only one file can
// come to be, and what it says decides.
func (s *Sink) claim(ctx context.Context, c caller, me Owner) error {
	name := s.cfg.Stream + "/" + ownerFile
	data, err := json.Marshal(me)
	if err != nil {
		return err
	}
	data = append(data, '\n')
	for try := 1; ; try++ {
		have, err := s.owner(ctx, c, name)
		if err == nil && *have != me && !mutant.On("another's prefix taken") {
			return &OwnerError{Store: s.store.String(), Name: name, Have: *have, Want: me}
		}
		if err == nil && mutant.On("the claim of a dead start not durable") {
			return nil
		}
		if err == nil {
			// Whoever made it may have died before it was durable. Props makes it so.
			return c.repeat(ctx, func(ctx context.Context) error {
				_, err := s.store.Props(ctx, name)
				return err
			})
		}
		if kindOf(err) != ErrNotFound {
			return err
		}
		id := NewBlockID(s.nonce(), 0)
		err = c.once(ctx, func(ctx context.Context) error { return s.store.Stage(ctx, name, id, data) })
		if err == nil {
			err = c.once(ctx, func(ctx context.Context) error { return s.store.Commit(ctx, name, []BlockID{id}, nil) })
		}
		k := kindOf(err)
		if k == nil || k == ErrRefused || k == ErrInvalid {
			return err
		}
		if k == ErrExists && try <= c.tries {
			continue // whose it is, a look will tell
		}
		if err := c.pause(ctx, try, err); err != nil {
			return err
		}
	}
}

// owner reads the owner file.
func (s *Sink) owner(ctx context.Context, c caller, name string) (*Owner, error) {
	var data []byte
	err := c.repeat(ctx, func(ctx context.Context) error {
		r, err := s.store.Read(ctx, name)
		if err != nil {
			return err
		}
		defer r.Close()
		data, err = io.ReadAll(io.LimitReader(r, maxOwnerBytes))
		return err
	})
	if err != nil {
		return nil, err
	}
	var o Owner
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&o); err != nil || o.Version != 1 {
		return nil, &StoreError{Kind: ErrRefused, Op: "read", Name: name, Where: s.store.String(), Err: err,
			Advice: fmt.Sprintf("it is no owner file of version 1 (%.100q): give the sink another prefix", data)}
	}
	return &o, nil
}

func (s *Sink) nonce() Nonce {
	var n Nonce
	s.cfg.Random(n[:])
	return n
}
