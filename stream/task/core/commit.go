package core

import (
	"errors"
	"fmt"
	"slices"

	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/progress"
)

// dirty reports whether any task has something that a transaction should hold.
func (w *Worker) dirty() bool { return slices.ContainsFunc(w.tasks, (*task).dirty) }

func (t *task) dirty() bool {
	if t.phase != taskRunning {
		return false
	}
	return t.touched || t.hasNews() || slices.ContainsFunc(t.sinks, func(s *sinkState) bool { return s.work(t.out.Ended) })
}

// hasNews reports whether downstream is to be told something.
func (t *task) hasNews() bool {
	if t.closing || t.out == t.sent {
		return false
	}
	return slices.ContainsFunc(t.stage.Outputs, func(o stream.Output) bool { return o.Intermediate })
}

// work reports whether the sink needs a transaction even if the task does not: it asked, or its last token is to be
// forgotten after the end.
func (s *sinkState) work(ended bool) bool {
	return s.wants || s.finish && (s.dirty || s.token != nil) || ended && s.token != nil && s.confirmed
}

// wantsCommit decides when step 1 begins. It waits for the sinks of the transaction before: of their tokens only one
// may be unconfirmed.
func (w *Worker) wantsCommit() bool {
	if w.sinksPending || !w.dirty() {
		return false
	}
	if w.commitNow || w.leaving() || w.txnRecords >= w.cfg.MaxTxnRecords || w.nowMs-w.lastCommitMs >= w.cfg.CommitIntervalMs {
		return true
	}
	return slices.ContainsFunc(w.tasks, func(t *task) bool {
		return t.phase == taskRunning && slices.ContainsFunc(t.sinks, func(s *sinkState) bool { return s.work(t.out.Ended) })
	})
}

// beginCommit is steps 1 and 2: what the tasks tell downstream goes behind their data, then everything is flushed and
// the sinks prepare.
func (w *Worker) beginCommit() {
	w.phase = phaseFlushing
	w.joining = w.joining[:0]
	var finish, prepare []SinkID
	for _, t := range w.tasks {
		if t.phase != taskRunning {
			continue
		}
		news := t.hasNews()
		if !t.dirty() && !t.moved {
			continue
		}
		w.joining = append(w.joining, t)
		if news {
			w.tell(t)
		}
		for _, s := range t.sinks {
			if s.finish {
				finish = append(finish, SinkID{t.id, s.name})
			}
			if mutant.On("sink token dropped early") && !s.dirty && !s.wants && !s.finish {
				s.token = nil
			}
			if s.dirty || s.wants || s.finish || s.token != nil {
				prepare = append(prepare, SinkID{t.id, s.name})
			}
		}
	}
	w.flushed, w.prepared = false, len(prepare) == 0 || mutant.On("checkpoint before sink.Prepare")
	w.push(Flush{w.epoch})
	if len(finish) > 0 {
		w.push(FinishSinks{w.epoch, finish})
	}
	if len(prepare) > 0 {
		w.push(PrepareSinks{w.epoch, prepare})
	}
}

// tell sends the task's state to every partition of its intermediate outputs.
func (w *Worker) tell(t *task) {
	c := progress.Control{
		Kind: progress.KindWatermark, Task: t.id.Name(), TaskCount: t.stage.Tasks, Run: w.cfg.Job.Run,
		TimestampMs: t.out.WatermarkMs, Idle: t.out.Idle,
	}
	if t.out.Ended {
		c.Kind, c.Idle = progress.KindEndOfStream, false
	}
	for _, out := range t.stage.Outputs {
		if !out.Intermediate {
			continue
		}
		c.Stream = out.Name
		value := c.Append(nil)
		for p := range out.Partitions {
			w.outbox = append(w.outbox, OutRecord{
				Topic: out.Topic, Partition: p, Value: value, TimestampMs: max(0, t.out.WatermarkMs),
			})
		}
	}
	t.sent = t.out
}

func (w *Worker) onFlushed(e Flushed) {
	if w.phase != phaseFlushing || e.Epoch != w.epoch {
		return
	}
	w.flushed = true
	for _, t := range w.joining {
		t.noteLoaded(e.Ends)
	}
	w.commit()
}

// noteLoaded keeps the ends of outputs that the job reads as bounded.
func (t *task) noteLoaded(ends []PartitionEnd) {
	for _, e := range ends {
		if !slices.ContainsFunc(t.stage.Outputs, func(o stream.Output) bool { return o.Loads && o.Topic == e.Topic }) {
			continue
		}
		i := slices.IndexFunc(t.loaded, func(have PartitionEnd) bool { return have.Topic == e.Topic && have.Partition == e.Partition })
		if i < 0 {
			t.loaded = append(t.loaded, e)
		} else {
			t.loaded[i].EndOffset = max(t.loaded[i].EndOffset, e.EndOffset)
		}
	}
}

func (w *Worker) onPrepared(e Prepared) {
	if w.phase != phaseFlushing || e.Epoch != w.epoch || w.prepared {
		return
	}
	for _, token := range e.Tokens {
		t := w.find(token.Task)
		if t == nil {
			continue
		}
		for _, s := range t.sinks {
			if s.name != token.Sink {
				continue
			}
			if err := s.take(token.Token, t); err != nil {
				w.stop(err)
				return
			}
		}
	}
	w.prepared = true
	w.commit()
}

// take makes a prepared token the sink's newest one.
func (s *sinkState) take(token []byte, t *task) error {
	if t.out.Ended && !s.dirty && s.token != nil && token != nil {
		if s.clears++; s.clears >= maxTokenClears {
			return fmt.Errorf("task %s: sink %s still has something pending %d commits after the end of its input: Prepare must return nil when all is committed", t.id.Name(), s.name, s.clears)
		}
	}
	s.token, s.confirmed = token, token == nil
	s.dirty, s.wants, s.finish = false, false, false
	return nil
}

// commit is steps 3 and 4, once steps 1 and 2 are answered.
func (w *Worker) commit() {
	if !w.flushed || !w.prepared {
		return
	}
	c := Commit{Epoch: w.epoch}
	for _, t := range w.joining {
		c.Owned = append(c.Owned, Ownership{t.id, t.token})
		for i, in := range t.inputs {
			if in.moved || i == 0 && !mutant.On("offsets skipped when unmoved") {
				c.Offsets = append(c.Offsets, GroupOffset{t.id, in.spec.Topic, t.id.Number, in.groupOffset()})
			}
		}
		for i, o := range t.stores {
			for _, write := range o.list() {
				c.Changelog = append(c.Changelog, OutRecord{
					Topic: t.stage.Stores[i].ChangelogTopic, Partition: t.id.Number, Key: write.Key, Value: write.Value,
					TimestampMs: -1,
				})
			}
		}
		t.commits++
		c.Checkpoints = append(c.Checkpoints, OutRecord{
			Topic: w.cfg.Plan.CheckpointTopic, Partition: t.id.Number, Key: []byte(t.id.Name()),
			Value: t.checkpoint(w.cfg.Job.Run).Encode(), TimestampMs: -1,
		})
	}
	w.phase = phaseEnding
	if mutant.On("sinks committed before EndTxn") {
		w.commitSinks()
	}
	w.push(c)
}

func (w *Worker) onTxnEnded(e TxnEnded) {
	if e.Epoch != w.epoch || w.phase == phaseDropping {
		return
	}
	if e.Outcome != Committed {
		w.fail(fmt.Errorf("transaction %d: %w", e.Epoch, orUnknown(e.Err)))
		return
	}
	if w.phase != phaseEnding {
		panic(fmt.Sprintf("BUG: transaction %d is reported committed before its commit was asked for", e.Epoch))
	}
	w.publish()
}

func orUnknown(err error) error {
	if err != nil {
		return err
	}
	return errors.New("no reason given")
}

// publish is step 5.
func (w *Worker) publish() {
	apply := ApplyStores{Epoch: w.epoch}
	for _, t := range w.joining {
		for i, o := range t.stores {
			if writes := o.list(); len(writes) > 0 {
				apply.Stores = append(apply.Stores, StoreWrites{t.id, t.stage.Stores[i].Name, writes})
			}
			o.clear()
		}
		pending := false
		for _, s := range t.sinks {
			pending = pending || s.token != nil
		}
		w.seen.note(t.id.Name(), t.out.Ended, pending, t.loaded)
		w.recheck = w.recheck || t.out.Ended
		t.touched, t.moved = false, false
		for _, in := range t.inputs {
			in.moved = false
		}
	}
	if len(apply.Stores) > 0 {
		w.push(apply)
	}
	w.sinksPending = w.commitSinks()
	w.phase, w.published = phaseOpen, true
	w.epoch++
	w.txnRecords, w.results, w.aborts = 0, 0, 0
	w.commitNow = w.closing()
	w.lastCommitMs = w.nowMs
	w.status.Commits++
	w.joining = w.joining[:0]
}

// commitSinks makes visible what the tokens of the transaction list, and reports whether there are any.
func (w *Worker) commitSinks() bool {
	commit := CommitSinks{Epoch: w.epoch}
	for _, t := range w.joining {
		for _, s := range t.sinks {
			if !s.confirmed {
				commit.Tokens = append(commit.Tokens, SinkToken{SinkID{t.id, s.name}, s.token})
			}
		}
	}
	if len(commit.Tokens) == 0 {
		return false
	}
	w.push(commit)
	return true
}

func (w *Worker) onSinksCommitted(e SinksCommitted) {
	if !w.sinksPending || e.Epoch != w.epoch-1 {
		return
	}
	w.sinksPending = false
	for _, t := range w.tasks {
		for _, s := range t.sinks {
			s.confirmed = true
		}
	}
}

func (w *Worker) onSinkWants(e SinkWants) {
	for _, id := range e.Sinks {
		if t := w.find(id.Task); t != nil && t.phase == taskRunning {
			for _, s := range t.sinks {
				s.wants = s.wants || s.name == id.Sink
			}
		}
	}
}

func (w *Worker) onFailed(e Failed) {
	if e.Fatal {
		w.stop(e.Err)
		return
	}
	// During a drop it says that the drop itself was interrupted: then there is nobody who would report its end.
	if e.Epoch == w.epoch {
		w.fail(fmt.Errorf("transaction %d: %w", e.Epoch, orUnknown(e.Err)))
	}
}

// fail takes the one way back after a failed or unknown transaction.
func (w *Worker) fail(reason error) {
	w.status.Aborts++
	if w.aborts++; w.aborts > w.cfg.MaxAborts {
		w.stop(fmt.Errorf("%d transactions in a row have failed, the last: %w", w.aborts, reason))
		return
	}
	backoff := int64(0)
	if w.aborts > 1 {
		backoff = min(maxBackoffMs, int64(50)<<min(w.aborts, 10))
	}
	w.drop(backoff, reason)
}

// drop forgets everything that no committed transaction holds: for state, timers and sequences alike, the way back is
// the restore.
func (w *Worker) drop(afterMs int64, reason error) {
	w.phase = phaseDropping
	w.epoch++
	w.outbox, w.writes, w.backlog, w.deferred = nil, nil, nil, nil
	w.joining = w.joining[:0]
	w.txnRecords, w.results = 0, 0
	w.commitNow, w.sinksPending = false, false
	for i, t := range w.tasks {
		w.tasks[i] = w.newTask(Ownership{t.id, t.token})
	}
	w.effects = append(w.effects, DropEverything{w.epoch, afterMs, reason})
}

func (w *Worker) onDropped(e Dropped) {
	if w.phase != phaseDropping || e.Epoch != w.epoch {
		return
	}
	w.phase = phaseOpen
	w.lastCommitMs = w.nowMs
	for _, t := range w.tasks {
		if !slices.Contains(w.revoking, t.id) {
			w.push(Restore{Ownership{t.id, t.token}})
		}
	}
}
