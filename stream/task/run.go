package task

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
)

// runner is what the workers of one process share.
type runner struct {
	cfg      Config
	plan     *stream.Plan
	record   *core.JobRecord
	client   *kafka.Client
	topicIDs map[string]string
	ended    bool // the job had ended before this start
	workers  []*worker
	unserved sync.Once // the log says that the broker does not delete records
}

// Run runs this process's part of a job. It returns nil when every task of the job has ended, in whatever process, and
// also when ctx is cancelled and the workers have committed and stopped within Config.StopDeadline. Any other end is an
// error that says what to do; what was not committed then is done again at the next start, and nothing is done twice.
//
// Errors to tell apart: ErrFenced, *MissingTopicError, *ChangedTopicError, *DifferentInputError, *DifferentPlanError,
// *OrphanOffsetsError, *ChangedFileError, *stream.RecordError, *kafka.TransactionTimeoutError, *state.FullError, what sinks
// return, and the two that another try may mend: *kafka.UnreachableError, after Config.StartDeadline, and
// *StartDeadlineError.
func Run(ctx context.Context, plan *stream.Plan, cfg Config) error {
	cfg = cfg.withDefaults(plan)
	if err := cfg.validate(); err != nil {
		return err
	}
	r := &runner{cfg: cfg}
	defer r.closeClient()
	err := r.start(ctx, plan)
	if err != nil {
		if ctx.Err() != nil {
			return nil // cancelled before anything was begun
		}
		return err
	}
	return r.work(ctx)
}

func (r *runner) start(ctx context.Context, plan *stream.Plan) error {
	err := reach(ctx, r.cfg, "the start of job "+plan.Job, func(ctx context.Context, answered func()) error {
		return r.find(ctx, plan, answered)
	})
	if err != nil {
		return err
	}
	r.topicIDs = make(map[string]string)
	for _, t := range r.record.Topics {
		if t.ID != "" {
			r.topicIDs[t.Name] = t.ID
		}
	}
	for n := range r.cfg.Workers {
		w, err := newWorker(r, n)
		if err != nil {
			return err
		}
		r.workers = append(r.workers, w)
	}
	return nil
}

// find opens the client and finds the job, or begins it. After an error it can be called again, like another process.
func (r *runner) find(ctx context.Context, plan *stream.Plan, answered func()) error {
	c, err := kafka.Open(ctx, r.cfg.Kafka)
	if err != nil {
		return err
	}
	answered()
	s := newStarter(c, plan, r.cfg)
	if err = c.CheckTransactionTimeout(ctx, r.cfg.TransactionTimeout); err == nil {
		r.plan, r.record, err = s.Start(ctx)
	}
	if err != nil {
		c.Close()
		return err
	}
	r.client, r.ended = c, s.Ended
	return nil
}

// work runs the workers, and beside them the reader of the checkpoint topic that tells them how the others stand.
func (r *runner) work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	follow, stopFollowing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFollowing()
	var group sync.WaitGroup
	errs := make([]error, len(r.workers)+1)
	for i, w := range r.workers {
		group.Add(1)
		go func() {
			defer group.Done()
			if errs[i] = w.loop(ctx); errs[i] != nil {
				cancel()
			}
		}()
	}
	var following sync.WaitGroup
	following.Add(1)
	go func() {
		defer following.Done()
		if errs[len(r.workers)] = r.follow(follow); errs[len(r.workers)] != nil {
			cancel()
		}
	}()
	group.Wait()
	if err := first(errs[:len(r.workers)]); err != nil || r.cfg.Progress == nil || ctx.Err() != nil {
		stopFollowing()
	} else {
		// The last checkpoints are committed: the display ends with them.
		defer time.AfterFunc(displayDeadline, stopFollowing).Stop()
	}
	following.Wait()
	return first(errs)
}

// first returns the error that explains the others: workers that were only stopped because of it come after.
func first(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, errStopDeadline) {
			return err
		}
	}
	return errors.Join(errs...)
}

// displayDeadline bounds what the end of a process waits for the last checkpoints to show.
const displayDeadline = 5 * time.Second

// Evict ends at once what dead processes of a job have left: their places in the group and their open transactions,
// which otherwise last until the session and transaction timeouts. Call it only where no process of the job can be
// alive, as where this process has just opened the broker's data folder: one that lives finds itself fenced.
func Evict(ctx context.Context, plan *stream.Plan, cfg kafka.Config) error {
	c, err := kafka.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	slots, err := c.StaticMembers(ctx, plan.Job)
	if err != nil {
		return err
	}
	if err := c.RemoveMembers(ctx, plan.Job, slots...); err != nil {
		return err
	}
	for _, slot := range slots {
		p, err := c.OpenProducer(ctx, kafka.ProducerConfig{ID: slot})
		if err != nil {
			return err
		}
		p.Close()
	}
	return nil
}

// follow reads the checkpoint topic from its beginning for all workers, and for the progress callback.
func (r *runner) follow(ctx context.Context) error {
	f, err := newFollower(r.client, r.plan, r.topicIDs)
	if err != nil {
		return err
	}
	defer f.close()
	show := newDisplay(r.cfg, r.plan, r.ended)
	for {
		key, value, err := f.next(ctx, show.due())
		switch {
		case errors.Is(err, errNothingYet):
			show.update()
		case ctx.Err() != nil:
			f.rest(func(key string, value []byte) { show.seen(key, value) })
			show.last()
			return nil
		case err != nil:
			return err
		default:
			show.seen(key, value)
			for _, w := range r.workers {
				w.box.postCheckpoint(key, value)
			}
			if r.cfg.Progress != nil && show.finished() {
				show.last()
				return nil
			}
		}
	}
}

// follower reads all partitions of a checkpoint topic.
type follower struct {
	fetcher *kafka.Fetcher
	batch   kafka.Batch
	taken   bool
}

func newFollower(c *kafka.Client, plan *stream.Plan, topicIDs map[string]string) (*follower, error) {
	fetcher, err := c.NewFetcher(kafka.FetchConfig{TopicIDs: topicIDs})
	if err != nil {
		return nil, err
	}
	f := &follower{fetcher: fetcher}
	for _, t := range plan.Topics {
		if t.Name == plan.CheckpointTopic {
			for p := range t.Partitions {
				f.fetcher.Add(kafka.TopicPartition{Topic: t.Name, Partition: int32(p)}, 0, 1)
			}
		}
	}
	return f, nil
}

func (f *follower) close() { f.fetcher.Close() }

// errNothingYet says that no checkpoint came in the time given.
var errNothingYet = errors.New("nothing yet")

// next gives the next committed record of the topic. wait 0 waits for ever.
func (f *follower) next(ctx context.Context, wait time.Duration) (string, []byte, error) {
	var timeout <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		timeout = t.C
	}
	for {
		if key, value, ok := f.pop(); ok {
			return key, value, nil
		}
		if f.batch.Err != nil {
			return "", nil, fmt.Errorf("task: following the checkpoints: %w", f.batch.Err)
		}
		var ok bool
		if f.batch, ok = f.fetcher.Take(); ok {
			f.taken = true
			continue
		}
		select {
		case <-ctx.Done():
			return "", nil, ctx.Err()
		case <-timeout:
			return "", nil, errNothingYet
		case <-f.fetcher.Ready():
		}
	}
}

// rest gives what was fetched already.
func (f *follower) rest(fn func(key string, value []byte)) {
	for {
		for key, value, ok := f.pop(); ok; key, value, ok = f.pop() {
			fn(key, value)
		}
		var ok bool
		if f.batch, ok = f.fetcher.Take(); !ok {
			return
		}
		f.taken = true
	}
}

func (f *follower) pop() (string, []byte, bool) {
	if len(f.batch.Records) == 0 {
		if f.taken {
			f.fetcher.Release(f.batch)
			f.taken = false
		}
		return "", nil, false
	}
	r := f.batch.Records[0]
	f.batch.Records = f.batch.Records[1:]
	return string(r.Key), r.Value, true
}
