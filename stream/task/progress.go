package task

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
)

// NoWatermark is a watermark that is not known yet.
const NoWatermark = -1

// Progress is how far a job has come, over all processes, as its committed checkpoints say: what it counts is durable
// and counted once.
type Progress struct {
	Job    string
	Stages []StageProgress // in the order of the plan
	// Commits counts the commits of all tasks: a transaction of a worker is one for each task that it touched.
	Commits int64
	// Finished says that every task has ended.
	Finished bool
	// EndedBefore says that every task had ended before this process started: there is nothing to do. Watch never says so.
	EndedBefore bool
}

// StageProgress sums the tasks of a stage.
type StageProgress struct {
	Stage string
	Tasks int
	Ended int
	// WatermarkMs is the lowest watermark that the stage's tasks have told downstream, NoWatermark while one of them has
	// none. Tasks that have ended hold nothing back.
	WatermarkMs int64
	Counters    core.Counters
	// SinkRows counts the rows given to sinks.
	SinkRows int64
}

// Stage returns the progress of one stage.
func (p Progress) Stage(name string) StageProgress {
	for _, s := range p.Stages {
		if s.Stage == name {
			return s
		}
	}
	return StageProgress{Stage: name, WatermarkMs: NoWatermark}
}

// display turns checkpoints into calls of the progress callback.
type display struct {
	cfg     Config
	plan    *stream.Plan
	ended   bool
	tasks   map[string]*core.Checkpoint
	changed bool
	updated time.Time
}

func newDisplay(cfg Config, plan *stream.Plan, ended bool) *display {
	return &display{cfg: cfg, plan: plan, ended: ended, tasks: make(map[string]*core.Checkpoint)}
}

// due is how long to wait for more before update is to be called; 0 is for ever.
func (d *display) due() time.Duration {
	if d.cfg.Progress == nil || !d.changed {
		return 0
	}
	return max(time.Millisecond, d.cfg.ProgressInterval-time.Since(d.updated))
}

func (d *display) seen(key string, value []byte) {
	if d.cfg.Progress == nil || key == core.JobRecordKey {
		return
	}
	if c, err := core.DecodeCheckpoint(value); err == nil { // a worker stops the job over one that cannot be read
		d.tasks[key] = c
		d.changed = true
	}
	if d.due() <= time.Millisecond {
		d.update()
	}
}

func (d *display) update() {
	if d.cfg.Progress == nil {
		return
	}
	d.changed, d.updated = false, time.Now()
	d.cfg.Progress(d.progress())
}

// last shows what came since the last update.
func (d *display) last() {
	if d.changed {
		d.update()
	}
}

// finished reports whether every task of the job has ended and given all its rows to its sinks.
func (d *display) finished() bool {
	for _, st := range d.plan.Stages {
		for n := range st.Tasks {
			if c := d.tasks[stream.TaskName(st.Name, n)]; c == nil || !c.Ended || slices.ContainsFunc(c.Sinks, hasToken) {
				return false
			}
		}
	}
	return true
}

func hasToken(s core.SinkCheckpoint) bool { return s.Token != nil }

func (d *display) progress() Progress {
	p := Progress{Job: d.plan.Job, Finished: true, EndedBefore: d.ended}
	for _, c := range slices.Sorted(maps.Keys(d.tasks)) {
		p.Commits += d.tasks[c].Commit
	}
	for _, st := range d.plan.Stages {
		s := StageProgress{Stage: st.Name, Tasks: st.Tasks, WatermarkMs: NoWatermark}
		lowest, known := int64(0), true
		for n := range st.Tasks {
			c := d.tasks[stream.TaskName(st.Name, n)]
			if c == nil {
				known, p.Finished = false, false
				continue
			}
			add(&s.Counters, c.Counters)
			for _, sink := range c.Sinks {
				s.SinkRows += sink.Rows
			}
			if c.Ended {
				s.Ended++
				continue
			}
			p.Finished = false
			if c.Sent.Watermark == nil {
				known = false
			} else if lowest == 0 || *c.Sent.Watermark < lowest {
				lowest = *c.Sent.Watermark
			}
		}
		if known && s.Ended < s.Tasks {
			s.WatermarkMs = lowest
		}
		p.Stages = append(p.Stages, s)
	}
	return p
}

func add(sum *core.Counters, c core.Counters) {
	sum.Records += c.Records
	sum.Skipped += c.Skipped
	sum.DeadLettered += c.DeadLettered
	sum.Late += c.Late
	sum.Emitted += c.Emitted
}

// Watch calls cfg.Progress with how far a job has come, from a process that runs none of it. It returns nil when every
// task has ended or ctx is cancelled. The job need not have begun. plan must be bound. A broker that does not answer is
// waited for as in Run.
func Watch(ctx context.Context, plan *stream.Plan, cfg Config) error {
	cfg = cfg.withDefaults(plan)
	if err := cfg.validate(); err != nil {
		return err
	}
	r := &runner{cfg: cfg, plan: plan}
	defer r.closeClient()
	for {
		begun := false
		err := reach(ctx, cfg, "looking for job "+plan.Job, func(ctx context.Context, answered func()) (err error) {
			begun, err = r.begun(ctx, answered)
			return err
		})
		if err != nil {
			return ignoreCancel(ctx, err)
		}
		if begun {
			return ignoreCancel(ctx, r.follow(ctx))
		}
		if !sleep(ctx, cfg.ProgressInterval) {
			return nil
		}
	}
}

// begun reports whether the job has its checkpoint topic. It opens the client if there is none, and closes it on an error.
func (r *runner) begun(ctx context.Context, answered func()) (bool, error) {
	var err error
	if r.client == nil {
		if r.client, err = kafka.Open(ctx, r.cfg.Kafka); err != nil {
			return false, err
		}
	}
	topics, err := r.client.Topics(ctx, r.plan.CheckpointTopic)
	if err != nil {
		r.closeClient()
		return false, err
	}
	answered()
	return len(topics) > 0, nil
}

func (r *runner) closeClient() {
	if r.client != nil {
		r.client.Close()
		r.client = nil
	}
}

func ignoreCancel(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
