package task

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/protocol"
)

const (
	// reachPause is the wait before a broker that did not answer is asked again; it doubles up to maxReachPause.
	reachPause    = 50 * time.Millisecond
	maxReachPause = time.Second
	// silence is how long a broker that neither answers nor refuses is waited for before the log says so.
	silence = time.Second
)

// reach repeats f while no broker answers it, for cfg.StartDeadline at most: processes and brokers that are started
// together come up in any order. f calls answered when a broker has. The log says once that it waits, and for whom.
func reach(ctx context.Context, cfg Config, what string, f func(ctx context.Context, answered func()) error) error {
	ctx, cancel := withDeadline(ctx, cfg.StartDeadline, what)
	defer cancel()
	var once sync.Once
	say := func(err error) {
		once.Do(func() {
			seen := "no answer"
			if err != nil {
				seen = err.Error()
			}
			cfg.Logger.Error("no broker answers yet, waiting for one", "brokers", strings.Join(cfg.Kafka.Brokers, ","),
				"deadline", cfg.StartDeadline, "seen", seen)
		})
	}
	timer := time.AfterFunc(silence, func() { say(nil) })
	defer timer.Stop()
	var last error
	for pause := reachPause; ; pause = min(2*pause, maxReachPause) {
		found := false
		err := f(ctx, func() { timer.Stop(); found = true })
		if err == nil {
			return nil
		}
		_, sink := errors.AsType[*protocol.SinkCheckError](err)
		switch {
		case ctx.Err() != nil && found:
			return &StartDeadlineError{What: what, Deadline: cfg.StartDeadline, Err: err}
		case ctx.Err() != nil:
			if last == nil {
				last = err
			}
			return unreached(cfg, last)
		case sink || !kafka.Unanswered(err):
			return err
		}
		last = err
		say(err)
		if !sleep(ctx, pause) {
			return unreached(cfg, last)
		}
	}
}

// unreached says that the whole deadline has passed.
func unreached(cfg Config, err error) error {
	if e, ok := errors.AsType[*kafka.UnreachableError](err); ok {
		err = e.Err
	}
	return &kafka.UnreachableError{Brokers: cfg.Kafka.Brokers, Within: cfg.StartDeadline, Err: err}
}

// withDeadline bounds a call.
func withDeadline(ctx context.Context, d time.Duration, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%s took longer than %v", what, d))
}

// newStarter returns the start of a job over a client.
func newStarter(c *kafka.Client, plan *stream.Plan, cfg Config) *protocol.Starter {
	return &protocol.Starter{
		Client: c, Plan: plan, TransactionTimeout: cfg.TransactionTimeout, Logger: cfg.Logger, Now: cfg.Now,
		OpenProducer: func(ctx context.Context, pc kafka.ProducerConfig) (protocol.Producer, error) {
			return c.OpenProducer(ctx, pc)
		},
		Pause: func(ctx context.Context, d time.Duration) bool { return sleep(ctx, d+rand.N(d)) },
	}
}
