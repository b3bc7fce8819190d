// Package task runs a topology: it hosts the workers of one process, each a loop that owns tasks of the job and drives
// the decisions of package core against a Kafka cluster, stores, files and sinks.
//
// Goroutines: one per worker runs its loop and owns everything of it; under it, for one life (from one InitProducerId
// to the next), one per call that waits (restore, flush, commit), one per sink writer and one per file being read. One
// per process follows the checkpoint topic. franz-go's own call back only through Member, Producer and Fetcher of
// package kafka.
package task

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/state"
)

// Config says how a job runs in this process. A zero field has the default named with it.
type Config struct {
	// Kafka is where the cluster is.
	Kafka kafka.Config
	// Replica numbers the processes of a job from 0, each its own: a transactional id is "<job>-<replica>-<n>", and two
	// live processes with one number fence each other.
	Replica int
	// Workers is how many loops this process runs, each with its own transactional producer. Default 1.
	Workers int

	// CommitInterval is how often a worker commits what it did. Default 100 ms, or 1 s if the plan has a sink.
	CommitInterval time.Duration
	// PrepareDeadline bounds what a sink may take to make a transaction's rows durable. Default 5 s.
	PrepareDeadline time.Duration
	// TransactionTimeout is after what time the broker aborts what a dead process left open. It must exceed
	// CommitInterval + PrepareDeadline. Default 10 s, or 2 s more than those two if that is longer.
	TransactionTimeout time.Duration
	// SessionTimeout is after what silence the group gives a process's tasks to others. Default 10 s; brokers allow
	// 6 s to 30 min.
	SessionTimeout time.Duration
	// RebalanceTimeout is how long a rebalance waits for this process's last commit, for which RevokeDeadline is the
	// limit, which must be lower. Defaults 30 s and two thirds of it.
	RebalanceTimeout time.Duration
	RevokeDeadline   time.Duration
	// StopDeadline bounds the graceful end after the context was cancelled. Default 30 s.
	StopDeadline time.Duration
	// StartDeadline bounds everything that happens before the first record: waiting for a broker that does not answer yet,
	// finding the cluster, its topics, the job record. Default 60 s.
	StartDeadline time.Duration

	// TrimInterval is how often records of intermediate streams that their reader has committed are deleted. Default 30 s,
	// negative never. On a broker that does not serve DeleteRecords these topics keep everything; the log says so once.
	TrimInterval time.Duration

	// MaxStoreBytes bounds each task's part of each store. Default state.DefaultMaxBytes.
	MaxStoreBytes int64
	// NewStore makes the committed part of a store. Default: in memory.
	NewStore func(name string, maxBytes int64) (state.Store, error)

	// Logger gets what happens. Nil is silent.
	Logger *slog.Logger
	// Progress, if set, is called from one goroutine with what the job's checkpoints say, at most every
	// ProgressInterval (default 200 ms) and once at the end.
	Progress         func(Progress)
	ProgressInterval time.Duration

	// Now is the wall clock, for timestamps of bookkeeping records and the run id. Default time.Now.
	Now func() time.Time
}

// Defaults of Config.
const (
	DefaultCommitInterval     = 100 * time.Millisecond
	DefaultSinkCommitInterval = time.Second
	DefaultPrepareDeadline    = 5 * time.Second
	DefaultSessionTimeout     = 10 * time.Second
	DefaultRebalanceTimeout   = 30 * time.Second
	DefaultStopDeadline       = 30 * time.Second
	DefaultStartDeadline      = 60 * time.Second
	DefaultProgressInterval   = 200 * time.Millisecond
	DefaultTrimInterval       = 30 * time.Second

	// timeoutSlack is what a default transaction timeout leaves for EndTxn itself.
	timeoutSlack = 2 * time.Second
	maxWorkers   = 1_000
	maxReplica   = 1_000_000
)

func (c Config) withDefaults(plan *stream.Plan) Config {
	orDuration := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	interval := DefaultCommitInterval
	if hasSink(plan) {
		interval = DefaultSinkCommitInterval
	}
	orDuration(&c.CommitInterval, interval)
	orDuration(&c.PrepareDeadline, DefaultPrepareDeadline)
	orDuration(&c.TransactionTimeout, max(kafka.DefaultTransactionTimeout, c.CommitInterval+c.PrepareDeadline+timeoutSlack))
	orDuration(&c.SessionTimeout, DefaultSessionTimeout)
	orDuration(&c.RebalanceTimeout, DefaultRebalanceTimeout)
	orDuration(&c.RevokeDeadline, c.RebalanceTimeout*2/3)
	orDuration(&c.StopDeadline, DefaultStopDeadline)
	orDuration(&c.StartDeadline, DefaultStartDeadline)
	orDuration(&c.ProgressInterval, DefaultProgressInterval)
	orDuration(&c.TrimInterval, DefaultTrimInterval)
	if c.Workers == 0 {
		c.Workers = 1
	}
	if c.MaxStoreBytes == 0 {
		c.MaxStoreBytes = state.DefaultMaxBytes
	}
	if c.NewStore == nil {
		c.NewStore = func(name string, maxBytes int64) (state.Store, error) { return state.NewMemory(name, maxBytes), nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func hasSink(plan *stream.Plan) bool {
	for _, s := range plan.Stages {
		if len(s.Sinks) > 0 {
			return true
		}
	}
	return false
}

// validate returns all that is wrong with c, whose defaults are filled.
func (c Config) validate() error {
	errs := []error{c.Kafka.Validate()}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("task: "+format, args...)) }
	if c.Workers < 1 || c.Workers > maxWorkers {
		bad("Workers is %d, must be 1 to %d", c.Workers, maxWorkers)
	}
	if c.Replica < 0 || c.Replica > maxReplica {
		bad("Replica is %d, must be 0 to %d", c.Replica, maxReplica)
	}
	for name, d := range map[string]time.Duration{
		"CommitInterval": c.CommitInterval, "PrepareDeadline": c.PrepareDeadline, "TransactionTimeout": c.TransactionTimeout,
		"SessionTimeout": c.SessionTimeout, "RebalanceTimeout": c.RebalanceTimeout, "RevokeDeadline": c.RevokeDeadline,
		"StopDeadline": c.StopDeadline, "StartDeadline": c.StartDeadline, "ProgressInterval": c.ProgressInterval,
	} {
		if d < time.Millisecond || d > time.Hour {
			bad("%s is %v, must be 1ms to 1h", name, d)
		}
	}
	if c.TransactionTimeout <= c.CommitInterval+c.PrepareDeadline {
		bad("TransactionTimeout is %v and must exceed CommitInterval (%v) + PrepareDeadline (%v), or the broker aborts transactions "+
			"that are still being prepared", c.TransactionTimeout, c.CommitInterval, c.PrepareDeadline)
	}
	if c.RevokeDeadline >= c.RebalanceTimeout {
		bad("RevokeDeadline is %v and must be below RebalanceTimeout (%v)", c.RevokeDeadline, c.RebalanceTimeout)
	}
	if c.MaxStoreBytes < 1 {
		bad("MaxStoreBytes is %d, must be positive", c.MaxStoreBytes)
	}
	return errors.Join(errs...)
}
