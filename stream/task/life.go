package task

import (
	"context"
	"sync"
	"time"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
	"github.com/strandline-io/strandline/stream/task/protocol"
)

// life is the time from one InitProducerId to the next. Everything that may wait runs under its context and is counted,
// so that a drop can end all of it and be sure that nothing of it comes after.
type life struct {
	number   int64
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	producer *kafka.Producer
	// ready is closed when producer is there; calls that were started before wait for it.
	ready chan struct{}

	// What follows belongs to the loop of the worker.
	inTxn bool // Begin was called and no outcome is known

	mu sync.Mutex
	// acks are, for the epoch, the offsets after the last acknowledged record of each partition.
	epoch int64
	acks  map[kafka.TopicPartition]int64
}

func newLife(base context.Context, number int64) *life {
	l := &life{number: number, ready: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(base)
	return l
}

// start hands the life its producer.
func (l *life) start(p *kafka.Producer) {
	l.producer = p
	close(l.ready)
}

// run calls f in a goroutine of the life, once the life has its producer.
func (l *life) run(f func(ctx context.Context)) {
	l.wg.Add(1)
	go func() {
		defer l.wg.Done()
		select {
		case <-l.ready:
			f(l.ctx)
		case <-l.ctx.Done():
		}
	}()
}

// end stops everything of the life and waits for it.
func (l *life) end() {
	l.cancel()
	l.wg.Wait()
	if l.producer != nil {
		l.producer.Close()
	}
}

// acked notes an acknowledgement.
func (l *life) acked(epoch int64, tp kafka.TopicPartition, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch > l.epoch || l.acks == nil {
		l.epoch, l.acks = epoch, make(map[kafka.TopicPartition]int64)
	}
	if epoch == l.epoch {
		l.acks[tp] = max(l.acks[tp], offset+1)
	}
}

// ends returns what was acknowledged in an epoch.
func (l *life) ends(epoch int64) map[kafka.TopicPartition]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch != l.epoch {
		return nil
	}
	out := make(map[kafka.TopicPartition]int64, len(l.acks))
	for tp, o := range l.acks {
		out[tp] = o
	}
	return out
}

// answer is an event of core that something of a life reports. Answers of older lives are dropped: what they tell of
// is gone.
type answer struct {
	life  int64
	event core.Event
}

// fatal ends the worker with an error, whatever core thinks.
type fatal struct{ err error }

// reborn says that a life, the first or one after a drop, has its producer. To core the first is no news.
type reborn struct {
	life  *life
	epoch int64
	p     *kafka.Producer
}

// drop is the one way back, step by step: end everything of the old life, wait, make sure that the slot is still ours,
// take the transactional id again. It runs beside the loop.
func (w *worker) drop(e core.DropEverything) {
	old := w.life
	w.live(newLife(w.base, old.number+1))
	w.log.Info("dropping everything", "reason", e.Reason, "epoch", e.Epoch, "after_ms", e.AfterMs)
	next := w.life
	old.cancel()
	writers := w.sinks.takeAll()
	w.fetcher.RemoveAll()
	w.files.removeAll()
	w.background.Add(1)
	go func() {
		defer w.background.Done()
		old.end()
		for _, s := range writers {
			s.close()
		}
		pause := time.NewTimer(time.Duration(e.AfterMs) * time.Millisecond)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-next.ctx.Done():
			return
		}
		failpoint.Hit("drop.ended")
		w.startLife(next, e.Epoch)
	}()
}

// startLife takes the slot for l and tells the loop, which alone starts a life. It runs beside the loop.
func (w *worker) startLife(l *life, epoch int64) {
	p, err := w.takeSlot(l.ctx)
	switch {
	case l.ctx.Err() != nil:
		if p != nil {
			p.Close()
		}
	case err != nil:
		w.box.post(fatal{err})
	default:
		w.box.post(reborn{l, epoch, p})
	}
}

// takeSlot opens the slot's producer, again and again while the cluster is away. Before that it asks the group whether
// another process has the slot: a process that wakes after a long pause must not fence its successor.
func (w *worker) takeSlot(ctx context.Context) (*kafka.Producer, error) {
	for pause := slotPause; ; pause = min(2*pause, maxSlotPause) {
		p, err := w.tryTakeSlot(ctx)
		if err == nil || protocol.Final(err) || ctx.Err() != nil {
			return p, err
		}
		w.log.Warn("cannot take the transactional id yet", "err", err)
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		case <-t.C:
		}
	}
}

const (
	slotPause    = 50 * time.Millisecond
	maxSlotPause = 2 * time.Second
	// slotDeadline bounds one try: it must outlast a predecessor's transaction.
	slotDeadline = 30 * time.Second
)

func (w *worker) tryTakeSlot(ctx context.Context) (*kafka.Producer, error) {
	ctx, cancel := withDeadline(ctx, slotDeadline, "taking transactional id "+w.slot)
	defer cancel()
	return protocol.TakeSlot(ctx, w.member.Check, func(ctx context.Context) (*kafka.Producer, error) {
		return w.run.client.OpenProducer(ctx, kafka.ProducerConfig{ID: w.slot, TransactionTimeout: w.cfg.TransactionTimeout})
	})
}
