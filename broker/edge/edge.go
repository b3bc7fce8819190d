// Package edge is what a connection decides by itself, beside the loop: whether the content of a batch is fit to be
// stored, and what readers get. It knows no connection: the broker's goroutines and the simulation call the same code.
// Nothing here changes what the broker knows; reads are answered from published views, each loaded once.
package edge

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/broker/wire"
)

// Config of an Edge; every field is needed.
type Config struct {
	Board *sequencer.Board
	Now   func() time.Time
	Log   *slog.Logger
	Pool  *wire.Pool
	// MessageMaxBytes bounds a batch in topics without a max.message.bytes of their own.
	MessageMaxBytes int32
	// FetchMaxBytes bounds one Fetch response, except that its first batch comes whole.
	FetchMaxBytes int32
	// FetchMemoryBytes bounds what all responses that are being read take.
	FetchMemoryBytes int64
	// RebuildMemoryBytes bounds batches that are stored in another compression than they came in.
	RebuildMemoryBytes int64
	// MaxUnpackedBytes bounds the records of one batch after decompression. At most as many batches as there are
	// processors are unpacked at a time, which bounds the memory of all.
	MaxUnpackedBytes int
	// FetchSessions bounds the fetch sessions that are kept, FetchSessionBytes the memory that they take.
	FetchSessions     int
	FetchSessionBytes int64
	// SessionSeed makes the ids of sessions: another one at each start.
	SessionSeed [32]byte
}

// Permissions say whether who asks may do something with a topic of this name; nil is that everybody may do everything.
type Permissions func(op kmsg.ACLOperation, topic string) bool

func (may Permissions) denied(op kmsg.ACLOperation, topic string) bool {
	return may != nil && !may(op, topic)
}

// Edge serves all connections. It may be called from anywhere.
type Edge struct {
	Config
	fetchBudget *wire.Budget
	sessions    *sessions
	rebuilding  *wire.Budget
	unpacking   chan struct{} // one token for each batch that may be decompressed at a time
	lookups     chan struct{} // one for each lookup by time, which may have to decompress one
}

// New returns an Edge over a board.
func New(cfg Config) *Edge {
	return &Edge{
		Config:      cfg,
		fetchBudget: wire.NewBudget(cfg.FetchMemoryBytes),
		sessions:    newSessions(cfg.FetchSessions, cfg.FetchSessionBytes, cfg.SessionSeed, cfg.Now),
		rebuilding:  wire.NewBudget(cfg.RebuildMemoryBytes),
		unpacking:   make(chan struct{}, max(2, runtime.GOMAXPROCS(0))),
		lookups:     make(chan struct{}, max(2, runtime.GOMAXPROCS(0))),
	}
}

// MemoryInUse is what batches in another compression and responses take at the moment.
func (e *Edge) MemoryInUse() (rebuildBytes, fetchBytes int64) {
	return e.rebuilding.InUse(), e.fetchBudget.InUse()
}
