package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
)

const (
	// startTries is how often a starter whose transaction failed looks again before it gives up. Starters that come at the
	// same time fence each other; the pauses, which grow and differ, let one of them through.
	startTries    = 20
	startPause    = 5 * time.Millisecond
	maxStartPause = time.Second
)

// Starter brings a job to the point where its workers can run: topics exist and are the right ones, and the job record
// says which run this is.
type Starter struct {
	Client             *kafka.Client
	OpenProducer       func(context.Context, kafka.ProducerConfig) (Producer, error)
	Plan               *stream.Plan
	TransactionTimeout time.Duration
	Logger             *slog.Logger
	Now                func() time.Time
	// Pause waits about so long between two tries, and reports whether to go on.
	Pause func(context.Context, time.Duration) bool
	// Ended says, after Start, that the job had ended before.
	Ended bool
}

// Start returns the bound plan and the job record, its own or the one that an earlier or faster starter wrote.
func (s *Starter) Start(ctx context.Context) (*stream.Plan, *core.JobRecord, error) {
	if err := s.bind(ctx); err != nil {
		return nil, nil, err
	}
	topics, err := s.topics(ctx)
	if err != nil {
		return nil, nil, err
	}
	// A record that is there was committed long ago. What a dead worker has left open above it is not waited for.
	record, err := s.read(ctx, topics, kafka.Committed)
	if err != nil {
		return nil, nil, err
	}
	if record == nil {
		if record, err = s.first(ctx, topics); err != nil {
			return nil, nil, err
		}
		if topics, err = s.topics(ctx); err != nil {
			return nil, nil, err
		}
	}
	if err := s.compare(record, topics); err != nil {
		return nil, nil, err
	}
	checkpoints, err := s.checkpoints(ctx, topics)
	if err != nil {
		return nil, nil, err
	}
	if name, bounded, changed := core.BoundednessChanged(s.Plan, record, checkpoints); changed {
		word := map[bool]string{true: "bounded", false: "unbounded"}
		return nil, nil, &DifferentPlanError{Job: s.Plan.Job, What: fmt.Sprintf("input %q", name), Began: word[bounded], Now: "it " + word[!bounded]}
	}
	if s.Ended = core.AllFinished(s.Plan, record.Run, checkpoints); s.Ended {
		s.Logger.Info("the job has ended before, everything is done: run it over other input under another name",
			"job", s.Plan.Job, "run", record.Run, "tasks", s.Plan.TaskCount())
	}
	return s.Plan, record, s.checkSinks(ctx, record, checkpoints)
}

// checkpointsBack bounds how far from the end of a partition of the checkpoint topic a start looks. A task whose newest
// checkpoint lies further back is not known to it, which costs a check and no correctness.
const checkpointsBack = 10_000

// checkpoints returns the newest committed checkpoints of tasks.
func (s *Starter) checkpoints(ctx context.Context, topics map[string]kafka.Topic) (map[string]*core.Checkpoint, error) {
	var tps []kafka.TopicPartition
	for p := range topics[s.Plan.CheckpointTopic].Partitions {
		tps = append(tps, kafka.TopicPartition{Topic: s.Plan.CheckpointTopic, Partition: p})
	}
	ends, err := s.Client.EndOffsets(ctx, tps, kafka.Committed)
	if err != nil {
		return nil, err
	}
	out := make(map[string]*core.Checkpoint)
	for _, tp := range tps {
		_, err := s.Client.ReadTo(ctx, tp, max(0, ends[tp]-checkpointsBack), ends[tp], func(r kafka.Record) error {
			if string(r.Key) == core.JobRecordKey {
				return nil
			}
			c, err := core.DecodeCheckpoint(r.Value)
			if err != nil {
				return fmt.Errorf("%s, offset %d, task %s: %w", tp, r.Offset, r.Key, err)
			}
			out[string(r.Key)] = c
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// checkSinks lets each sink say whether it can be used, and, if it has rows of this run, whether it knows the run.
func (s *Starter) checkSinks(ctx context.Context, record *core.JobRecord, checkpoints map[string]*core.Checkpoint) error {
	identity := stream.JobIdentity{Job: s.Plan.Job, Run: RunName(record)}
	for _, st := range s.Plan.Stages {
		for _, sink := range st.Sinks {
			rows := int64(0)
			for n := range st.Tasks {
				rows += rowsOf(checkpoints[stream.TaskName(st.Name, n)], sink.Name(), record.Run)
			}
			check := sink.Check
			if again, ok := sink.(stream.RunChecker); ok && rows > 0 {
				check = func(ctx context.Context, job stream.JobIdentity) error { return again.CheckRun(ctx, job, rows) }
			}
			if err := check(ctx, identity); err != nil {
				return &SinkCheckError{sink.Name(), err}
			}
		}
	}
	return nil
}

func rowsOf(c *core.Checkpoint, sink string, run int64) int64 {
	if c == nil || c.Run != run {
		return 0
	}
	for _, s := range c.Sinks {
		if s.Sink == sink {
			return s.Rows
		}
	}
	return 0
}

// RunName is the run's name for sinks.
func RunName(r *core.JobRecord) string { return strconv.FormatInt(r.Run, 10) }

// bind asks the cluster for the partition counts that the plan leaves to it.
func (s *Starter) bind(ctx context.Context) error {
	unbound := s.Plan.Unbound()
	if len(unbound) == 0 {
		return nil
	}
	topics, err := s.Client.Topics(ctx, unbound...)
	if err != nil {
		return err
	}
	counts := make(map[string]int)
	for _, name := range unbound {
		if t, ok := topics[name]; ok {
			counts[name] = int(t.Partitions)
		}
	}
	s.Plan, err = s.Plan.Bind(counts)
	return err
}

func (s *Starter) topics(ctx context.Context) (map[string]kafka.Topic, error) {
	names := make([]string, len(s.Plan.Topics))
	for i, t := range s.Plan.Topics {
		names[i] = t.Name
	}
	return s.Client.Topics(ctx, names...)
}

// read returns the job record, nil if there is none.
func (s *Starter) read(ctx context.Context, topics map[string]kafka.Topic, upTo kafka.Isolation) (*core.JobRecord, error) {
	if _, ok := topics[s.Plan.CheckpointTopic]; !ok {
		return nil, nil
	}
	var record *core.JobRecord
	_, err := s.Client.ReadAll(ctx, kafka.TopicPartition{Topic: s.Plan.CheckpointTopic}, upTo, func(r kafka.Record) error {
		if string(r.Key) != core.JobRecordKey {
			return nil
		}
		var err error
		if record, err = core.DecodeJobRecord(r.Value); err != nil {
			return fmt.Errorf("topic %q, offset %d: %w", s.Plan.CheckpointTopic, r.Offset, err)
		}
		return nil
	})
	if mutant.On("new run id at restart") {
		record = nil
	}
	return record, err
}

// first is the first start: it creates the topics and writes the record, in one transaction with the splits.
func (s *Starter) first(ctx context.Context, topics map[string]kafka.Topic) (*core.JobRecord, error) {
	if err := s.refuseOrphans(ctx, topics); err != nil {
		// A faster starter may have begun the job, and run it, since its record was looked for.
		if record, lookErr := s.lookAgain(ctx); record != nil || lookErr != nil {
			return record, lookErr
		}
		return nil, err
	}
	topics, err := s.create(ctx, topics)
	if err != nil {
		return nil, err
	}
	failpoint.Hit("start.topics")
	var last error
	for pause, try := startPause, 0; try < startTries; pause, try = min(2*pause, maxStartPause), try+1 {
		record, err := s.write(ctx, topics)
		if err == nil || !retryableStart(err) {
			return record, err
		}
		last = err
		s.Logger.Info("another starter was faster or the start transaction failed, looking again", "job", s.Plan.Job, "err", err)
		if !s.Pause(ctx, pause) {
			return nil, context.Cause(ctx)
		}
		if record, err := s.read(ctx, topics, kafka.Committed); record != nil || err != nil {
			return record, err
		}
	}
	return nil, fmt.Errorf("job %q could not write its record in %d tries: %w", s.Plan.Job, startTries, last)
}

// lookAgain reads the record that somebody may have written since.
func (s *Starter) lookAgain(ctx context.Context) (*core.JobRecord, error) {
	topics, err := s.topics(ctx)
	if err != nil {
		return nil, err
	}
	return s.read(ctx, topics, kafka.Uncommitted)
}

// errStartAgain marks a start transaction that did not commit for a reason that may pass.
var errStartAgain = errors.New("the start transaction did not commit")

func retryableStart(err error) bool { return errors.Is(err, errStartAgain) }

// refuseOrphans stops a start without a job record over committed offsets or checkpoints.
func (s *Starter) refuseOrphans(ctx context.Context, topics map[string]kafka.Topic) error {
	var tps []kafka.TopicPartition
	for _, st := range s.Plan.Stages {
		for _, in := range st.Inputs {
			if t, ok := topics[in.Topic]; ok {
				for p := range t.Partitions {
					tps = append(tps, kafka.TopicPartition{Topic: in.Topic, Partition: p})
				}
			}
		}
	}
	offsets, err := s.Client.CommittedOffsets(ctx, s.Plan.Job, tps)
	if err != nil {
		return err
	}
	for _, tp := range tps {
		if _, ok := offsets[tp]; ok {
			return &OrphanOffsetsError{Job: s.Plan.Job, Topic: tp.Topic, CheckpointTopic: s.Plan.CheckpointTopic}
		}
	}
	checkpoints, err := s.checkpoints(ctx, topics)
	if err != nil {
		return err
	}
	if tasks := slices.Sorted(maps.Keys(checkpoints)); len(tasks) > 0 {
		return &OrphanCheckpointError{Job: s.Plan.Job, Task: tasks[0], CheckpointTopic: s.Plan.CheckpointTopic}
	}
	return nil
}

// create makes the topics that the job owns and checks the others.
func (s *Starter) create(ctx context.Context, existing map[string]kafka.Topic) (map[string]kafka.Topic, error) {
	var specs []kafka.TopicSpec
	for _, t := range s.Plan.Topics {
		_, exists := existing[t.Name]
		switch {
		case t.Kind == stream.KindSource && !exists:
			return nil, &MissingTopicError{Job: s.Plan.Job, Topic: t.Name}
		case t.Kind == stream.KindSource || t.Kind == stream.KindDeadLetter && exists:
			continue
		}
		specs = append(specs, kafka.TopicSpec{
			Name: t.Name, Partitions: int32(t.Partitions), Compacted: t.Compacted, KeepForever: true,
		})
	}
	if _, err := s.Client.CreateTopics(ctx, specs); err != nil {
		return nil, err
	}
	return s.topics(ctx)
}

// write writes the job record unless it is there: the transactional id "<job>-start" lets only one of several starters
// that came at the same time commit, and the others read what it wrote.
func (s *Starter) write(ctx context.Context, topics map[string]kafka.Topic) (*core.JobRecord, error) {
	p, err := s.OpenProducer(ctx, kafka.ProducerConfig{ID: s.Plan.Job + "-start", TransactionTimeout: s.TransactionTimeout})
	if errors.Is(err, kafka.ErrFenced) {
		return nil, fmt.Errorf("%w: %w", errStartAgain, err)
	}
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if record, err := s.read(ctx, topics, kafka.Uncommitted); record != nil || err != nil {
		return record, err
	}
	record, err := s.record(ctx, topics)
	if err != nil {
		return nil, err
	}
	if err := p.Begin(); err != nil {
		return nil, err
	}
	for _, r := range s.startRecords(record) {
		p.Produce(ctx, r, nil)
	}
	if err := p.Flush(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errStartAgain, err)
	}
	failpoint.Hit("start.produced")
	if outcome, err := p.Commit(ctx); outcome != kafka.CommittedOutcome {
		return nil, fmt.Errorf("%w (%v): %w", errStartAgain, outcome, err)
	}
	failpoint.Hit("start.committed")
	s.Logger.Info("job begins", "job", s.Plan.Job, "run", record.Run)
	return record, nil
}

// record says what this run is: its id, its topics, the ends of what it reads as bounded, its splits.
func (s *Starter) record(ctx context.Context, topics map[string]kafka.Topic) (*core.JobRecord, error) {
	var known []core.TopicRecord
	for _, t := range kafka.SortedTopics(topics) {
		known = append(known, core.TopicRecord{Name: t.Name, ID: topicID(t), Partitions: int(t.Partitions)})
	}
	var fixed []kafka.TopicPartition
	for _, t := range core.NeedsEnds(s.Plan) {
		for p := range t.Partitions {
			fixed = append(fixed, kafka.TopicPartition{Topic: t.Name, Partition: int32(p)})
		}
	}
	offsets, err := s.Client.EndOffsets(ctx, fixed, kafka.Committed)
	if err != nil {
		return nil, err
	}
	var ends []core.PartitionEnd
	for _, tp := range fixed {
		ends = append(ends, core.PartitionEnd{Topic: tp.Topic, Partition: int(tp.Partition), EndOffset: offsets[tp]})
	}
	return core.NewJobRecord(s.Plan, s.Now().UnixMilli(), known, ends), nil
}

func topicID(t kafka.Topic) string {
	if strings.Trim(t.ID, "0") == "" {
		return ""
	}
	return t.ID
}

func splitsOf(in stream.Input) []stream.Split {
	out := make([]stream.Split, len(in.Files))
	for i, f := range in.Files {
		out[i] = f.Split
	}
	return out
}

// startRecords are the records of the start transaction: one per split, so that a split is a partition which the group
// assigns and fences like any other, and the job record.
func (s *Starter) startRecords(r *core.JobRecord) []kafka.Record {
	now := s.Now().UnixMilli()
	var out []kafka.Record
	for _, st := range s.Plan.Stages {
		for _, in := range st.Inputs {
			for n, f := range in.Files {
				out = append(out, kafka.Record{
					TopicPartition: kafka.TopicPartition{Topic: in.Topic, Partition: int32(n)},
					Key:            []byte(f.Split.Name), Value: splitValue(f.Split), TimestampMs: now,
				})
			}
		}
	}
	return append(out, kafka.Record{
		TopicPartition: kafka.TopicPartition{Topic: s.Plan.CheckpointTopic}, Key: []byte(core.JobRecordKey), Value: r.Encode(), TimestampMs: now,
	})
}

func splitValue(split stream.Split) []byte {
	b, err := json.Marshal(split)
	if err != nil {
		panic(fmt.Sprintf("BUG: a split has no JSON: %v", err))
	}
	return b
}

// compare refuses to run a job over topics, stages or inputs that are not those it began with.
func (s *Starter) compare(r *core.JobRecord, topics map[string]kafka.Topic) error {
	if r.Job != s.Plan.Job {
		return &DifferentPlanError{Job: s.Plan.Job, What: "the name", Began: r.Job, Now: s.Plan.Job}
	}
	if began, now := describe(r.Stages), describe(core.NewJobRecord(s.Plan, r.Run, nil, nil).Stages); began != now {
		return &DifferentPlanError{Job: s.Plan.Job, What: "the stages", Began: began, Now: now}
	}
	recorded := make(map[string]core.TopicRecord)
	for _, t := range r.Topics {
		recorded[t.Name] = t
	}
	for _, spec := range s.Plan.Topics {
		began, known := recorded[spec.Name]
		now, exists := topics[spec.Name]
		switch {
		case !known:
			return &DifferentPlanError{Job: s.Plan.Job, What: "topics", Began: "without " + spec.Name, Now: "it"}
		case !exists:
			return &MissingTopicError{Job: s.Plan.Job, Topic: spec.Name, Began: true}
		case began.ID != topicID(now):
			return &ChangedTopicError{Job: s.Plan.Job, Topic: spec.Name, What: "id", Began: began.ID, Now: topicID(now)}
		case began.Partitions != int(now.Partitions):
			return &ChangedTopicError{Job: s.Plan.Job, Topic: spec.Name, What: "partition count",
				Began: strconv.Itoa(began.Partitions), Now: strconv.Itoa(int(now.Partitions))}
		}
	}
	return s.compareSplits(r)
}

func (s *Starter) compareSplits(r *core.JobRecord) error {
	began := make(map[string][]stream.Split)
	for _, in := range r.Splits {
		began[in.Stream] = in.Splits
	}
	for _, st := range s.Plan.Stages {
		for _, in := range st.Inputs {
			if in.Kind == stream.InputFile && !slices.Equal(began[in.Name], splitsOf(in)) {
				return &DifferentInputError{Job: s.Plan.Job, Stream: in.Name, Began: began[in.Name], Now: splitsOf(in)}
			}
		}
	}
	return nil
}

// describe shows what of the stages a job's state depends on.
func describe(stages []core.StageRecord) string {
	var b strings.Builder
	for _, st := range stages {
		fmt.Fprintf(&b, " %s(%d tasks, inputs %v, stores %v, sinks %v)", st.Name, st.Tasks, st.Inputs, st.Stores, st.Sinks)
	}
	return strings.TrimSpace(b.String())
}

// SinkCheckError keeps apart what a sink's store did not answer from what a broker did not.
type SinkCheckError struct {
	Sink string
	Err  error
}

func (e *SinkCheckError) Error() string { return fmt.Sprintf("sink %q: %v", e.Sink, e.Err) }
func (e *SinkCheckError) Unwrap() error { return e.Err }
