package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ProducerConfig describes one transactional producer.
type ProducerConfig struct {
	// ID is the transactional id. Two live producers with one id fence each other.
	ID string
	// TransactionTimeout is after what time the broker aborts a transaction by itself. Default 10 s.
	TransactionTimeout time.Duration
	// MaxBufferedBytes is how many bytes may be produced and unacknowledged before Produce waits. Default 32 MiB.
	MaxBufferedBytes int
}

// DefaultTransactionTimeout is that of KIP-447 stream processors: what a replica that never returns left open blocks
// readers for so long.
const DefaultTransactionTimeout = 10 * time.Second

const (
	defaultMaxBufferedBytes = 32 << 20
	maxBufferedRecords      = 1 << 20
	producerBatchMaxBytes   = 1 << 20
	concurrentBackoff       = 20 * time.Millisecond
)

// Outcome is how a transaction ended.
type Outcome int8

const (
	// Unknown: the transaction may have been committed or not, or it was and a late copy of its end may end the next one.
	// Only a new InitProducerId and what can be read after it tell, and make sure.
	Unknown Outcome = iota
	// CommittedOutcome: all of it is durable and becomes visible.
	CommittedOutcome
	// AbortedOutcome: none of it will ever be visible.
	AbortedOutcome
)

func (o Outcome) String() string {
	switch o {
	case CommittedOutcome:
		return "committed"
	case AbortedOutcome:
		return "aborted"
	}
	return "unknown"
}

// Producer is one transactional id with one transaction at a time. One worker owns it; calls do not overlap. After any
// outcome but committed it is of no more use: Close it and open another, which aborts or awaits what this one left.
type Producer struct {
	id      string
	kc      *kgo.Client
	version int16

	groupsAdded map[string]bool
	unanswered  unanswered

	mu       sync.Mutex
	firstErr error
}

// OpenProducer takes the transactional id over: InitProducerId fences whoever had it, aborts what it left open and
// waits until what it had decided is complete.
func (c *Client) OpenProducer(ctx context.Context, cfg ProducerConfig) (*Producer, error) {
	if cfg.ID == "" {
		return nil, errors.New("kafka: a producer needs a transactional id")
	}
	if cfg.TransactionTimeout == 0 {
		cfg.TransactionTimeout = DefaultTransactionTimeout
	}
	if cfg.MaxBufferedBytes == 0 {
		cfg.MaxBufferedBytes = defaultMaxBufferedBytes
	}
	p := &Producer{id: cfg.ID, version: c.transactionVersion}
	opts := append(c.cfg.options(),
		kgo.WithHooks(&p.unanswered),
		kgo.TransactionalID(cfg.ID),
		kgo.TransactionTimeout(cfg.TransactionTimeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(0),
		kgo.ProducerBatchMaxBytes(producerBatchMaxBytes),
		kgo.MaxBufferedBytes(cfg.MaxBufferedBytes),
		kgo.MaxBufferedRecords(maxBufferedRecords),
		kgo.ConcurrentTransactionsBackoff(concurrentBackoff),
		versionsFor(c.transactionVersion),
	)
	kc, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	p.kc = kc
	err = retry(ctx, kgoLink{kc}, func() error {
		_, _, err := kc.ProducerID(ctx)
		return err
	})
	if err != nil {
		kc.Close()
		if errors.Is(err, kerr.InvalidTransactionTimeout) {
			return nil, &TransactionTimeoutError{WantMs: cfg.TransactionTimeout.Milliseconds()}
		}
		if isFencing(err) {
			return nil, fmt.Errorf("kafka: InitProducerId of %q: %w: %w", cfg.ID, ErrFenced, err)
		}
		return nil, fmt.Errorf("kafka: InitProducerId of %q: %w", cfg.ID, err)
	}
	return p, nil
}

// Close drops what is not acknowledged and ends the connections. A transaction that is open stays open until the id is
// taken over or its timeout passes.
func (p *Producer) Close() {
	p.kc.UnsafeAbortBufferedRecords()
	p.kc.Close()
}

// Identity is the current producer id and epoch, for logs.
func (p *Producer) Identity(ctx context.Context) (id int64, epoch int16, err error) {
	return p.kc.ProducerID(ctx)
}

// Begin begins a transaction. Nothing goes to the broker before the first Produce.
func (p *Producer) Begin() error {
	if err := p.kc.BeginTransaction(); err != nil {
		return fmt.Errorf("kafka: begin of a transaction of %q: %w", p.id, err)
	}
	p.groupsAdded = nil
	p.setErr(nil)
	return nil
}

// Produce sends a record to its partition. It waits only while the buffer is full. done, which may be nil, is called
// once from another goroutine with the record's offset or the error; the first error also comes back from Flush.
// The record's bytes must not change before that.
func (p *Producer) Produce(ctx context.Context, r Record, done func(offset int64, err error)) {
	kr := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.TimestampMs)}
	for _, h := range r.Headers {
		kr.Headers = append(kr.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	p.kc.Produce(ctx, kr, func(kr *kgo.Record, err error) {
		if err != nil {
			err = fmt.Errorf("kafka: produce to %s-%d: %w%s", kr.Topic, kr.Partition, err, produceAdvice(err))
			p.setErr(err)
		}
		if done != nil {
			done(kr.Offset, err)
		}
	})
}

// produceAdvice says what mends a refusal that depends on the topic's settings.
func produceAdvice(err error) string {
	switch {
	case errors.Is(err, kerr.InvalidTimestamp):
		return ": raise the topic's message.timestamp.after.max.ms, or message.timestamp.before.max.ms"
	case errors.Is(err, kerr.MessageTooLarge):
		return ": raise the topic's max.message.bytes, up to 1 MiB, or send smaller records"
	}
	return ""
}

func (p *Producer) setErr(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil || p.firstErr == nil {
		p.firstErr = err
	}
}

// Flush waits until everything produced is acknowledged and returns the first error of this transaction.
func (p *Producer) Flush(ctx context.Context) error {
	if err := p.kc.Flush(ctx); err != nil {
		return fmt.Errorf("kafka: waiting for acknowledgements: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.firstErr
}

// CommitOffsets puts offsets of the group into the transaction, after all produces are acknowledged. The offsets
// become the group's with the transaction's commit. A refusal because the membership is no longer current, or any
// other error, means that the transaction must be aborted.
func (p *Producer) CommitOffsets(ctx context.Context, m Membership, offsets map[TopicPartition]int64) error {
	if len(offsets) == 0 {
		return nil
	}
	id, epoch, err := p.kc.ProducerID(ctx)
	if err != nil {
		return fmt.Errorf("kafka: producer id of %q: %w", p.id, err)
	}
	if p.version < 2 && !p.groupsAdded[m.Group] {
		if err := addGroup(ctx, kgoLink{p.kc}, TxnID{p.id, id, epoch}, m.Group); err != nil {
			return err
		}
		if p.groupsAdded == nil {
			p.groupsAdded = make(map[string]bool)
		}
		p.groupsAdded[m.Group] = true
	}
	return sendOffsets(ctx, kgoLink{p.kc}, TxnID{p.id, id, epoch}, m, offsets)
}

// Commit ends the transaction. Everything must have been flushed, and something produced: franz-go sends no EndTxn for
// a transaction in which it produced nothing. The error is nil for CommittedOutcome only.
func (p *Producer) Commit(ctx context.Context) (Outcome, error) {
	err := p.kc.EndTransaction(ctx, kgo.TryCommit)
	outcome, err := EndOutcome(err, p.version, p.unanswered.count())
	if err != nil {
		err = fmt.Errorf("kafka: commit of a transaction of %q: %w", p.id, err)
	}
	return outcome, err
}

// Abort drops what is buffered and ends the transaction without effect, so that readers need not wait for a takeover.
func (p *Producer) Abort(ctx context.Context) (Outcome, error) {
	if err := p.kc.AbortBufferedRecords(ctx); err != nil {
		return Unknown, fmt.Errorf("kafka: abort of a transaction of %q: %w", p.id, err)
	}
	err := p.kc.EndTransaction(ctx, kgo.TryAbort)
	if outcome, err := EndOutcome(err, p.version, p.unanswered.count()); err != nil {
		return outcome, fmt.Errorf("kafka: abort of a transaction of %q: %w", p.id, err)
	}
	return AbortedOutcome, nil
}

// unanswered counts the requests of a producer that outlive its transaction and were sent without being answered. franz-go
// repeats them over another connection and does not say so; its hooks see each copy, before whoever waits for the answer.
type unanswered struct{ n atomic.Int64 }

func (u *unanswered) count() int { return int(u.n.Load()) }

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (u *unanswered) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, bytesWritten int, _, _ time.Duration, _ error) {
	if Outlives(key) && bytesWritten > 0 {
		u.n.Add(1)
	}
}

// OnBrokerRead implements kgo.HookBrokerRead.
func (u *unanswered) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if Outlives(key) && err == nil {
		u.n.Add(-1)
	}
}
