//go:build peers

package broker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/test/peers"
)

// The topics of a storm: plain gets idempotent records, ledger transactions, and copy what a group of transactional
// sessions copies from plain.
const (
	plainTopic  = "plain"
	ledgerTopic = "ledger"
	copyTopic   = "copy"
	partitions  = 4
	copiers     = "copiers"
)

var stormTopics = []string{plainTopic, ledgerTopic, copyTopic}

// outcome is what a client knows of a transaction.
type outcome int

const (
	aborted   outcome = iota // never asked to commit, or told that it was aborted
	committed                // told so
	unknown                  // asked to commit, no answer
)

// transaction is one of ledger's.
type transaction struct {
	outcome outcome
	at      map[position]string // what was acknowledged
}

// storm is a broker under load that is killed again and again, and what its clients know.
type storm struct {
	t        *testing.T
	server   *server
	ctx      context.Context // bounds everything
	stopping chan struct{}   // closed when the writers shall finish
	progress atomic.Int64    // acknowledgements
	copies   atomic.Int64    // committed transactions of the copiers

	mu           sync.Mutex
	acknowledged content // of plain
	transactions []*transaction
	early        content        // what readers saw in ledger and copy during the storm, read_committed
	doubts       map[string]int // what clients were told that leaves them in doubt, and how often
}

// TestKillStorm kills `strandline serve` at random moments under every kind of load, and once more a broker whose
// journal is so small that it is always sealing, moving and freeing.
func TestKillStorm(t *testing.T) {
	run := func(name string, start func(testing.TB) *server, kills int) {
		t.Run(name, func(t *testing.T) { weather(t, start(t), kills) })
	}
	run("serve", func(t testing.TB) *server { return start(t, "--partitions", "4", "--verify") }, 9)
	run("tight journal, write", func(t testing.TB) *server { return startTight(t, "write") }, 8)
	run("tight journal, fsync", func(t testing.TB) *server { return startTight(t, "fsync") }, 8)
}

// weather runs one storm and judges what it left.
func weather(t *testing.T, s *server, kills int) {
	rng := peers.Seed(t)
	st := &storm{
		t: t, server: s, ctx: within(t, 3*patience), stopping: make(chan struct{}),
		acknowledged: content{}, early: content{}, doubts: map[string]int{},
	}
	for _, topic := range stormTopics {
		createTopic(t, st.ctx, s.Addr, topic, partitions)
	}
	writers, readers := st.launch(rng)
	for k := range kills {
		st.strike(k, rng)
	}
	st.advance(200)
	close(st.stopping)
	writers.wait(t)
	st.settle()
	readers.stop()
	st.judge("after the storm")
	s.restart()
	st.judge("after one more restart")
	st.report(kills)
}

func (st *storm) report(kills int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	var told [3]int
	for _, tx := range st.transactions {
		told[tx.outcome]++
	}
	st.t.Logf("%d kills; %d records acknowledged; transactions: %d committed, %d aborted, %d unknown; copied in %d", kills,
		len(st.acknowledged), told[committed], told[aborted], told[unknown], st.copies.Load())
	for what, n := range st.doubts {
		st.t.Logf("%d× %s", n, what)
	}
}

// crew is a set of goroutines that end together.
type crew struct {
	cancel context.CancelFunc
	group  sync.WaitGroup
}

func (c *crew) wait(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	go func() { c.group.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		var stacks strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		t.Fatalf("the clients did not finish within %v:\n%s", patience, stacks.String())
	}
}

func (c *crew) stop() {
	c.cancel()
	c.group.Wait()
}

// launch starts all clients. Writers end by stopping, readers by their crew's stop.
func (st *storm) launch(rng *rand.Rand) (writers, readers *crew) {
	ctx, cancel := context.WithCancel(st.ctx)
	st.t.Cleanup(cancel)
	writers, readers = &crew{cancel: cancel}, &crew{cancel: cancel}
	do := func(c *crew, f func(*rand.Rand)) {
		own := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		c.group.Go(func() { f(own) })
	}
	for i := range 2 {
		do(writers, func(r *rand.Rand) { st.produce(i, r) })
	}
	for i := range 3 {
		do(writers, func(r *rand.Rand) { st.transact(i, r) })
	}
	for i := range 2 {
		do(writers, func(r *rand.Rand) { st.copy(i, r) })
	}
	do(writers, st.abandon)
	do(readers, func(*rand.Rand) { st.watch(ctx) })
	return writers, readers
}

// strike kills the broker when its clients have got some way, and starts it again, sometimes killing it in recovery.
func (st *storm) strike(k int, rng *rand.Rand) {
	if k%4 == 3 {
		wait(rng.IntN(8)) // hardly anything was answered since the start
	} else {
		st.advance(rng.Int64N(2500))
		wait(rng.IntN(30))
	}
	st.server.Kill()
	for range rng.IntN(3) {
		st.server.Launch()
		wait(rng.IntN(25))
		st.server.Kill()
	}
	if k%3 == 2 {
		wait(200) // long enough for clients to give up dialing once
	}
	st.server.Again()
}

func wait(ms int) { <-time.After(time.Duration(ms) * time.Millisecond) }

// advance waits for n more acknowledgements.
func (st *storm) advance(n int64) {
	goal := st.progress.Load() + n
	ctx, cancel := context.WithTimeout(st.ctx, patience)
	defer cancel()
	eventually(st.t, ctx, "progress", func() (bool, error) {
		if ctx.Err() != nil {
			st.server.dump()
		}
		return st.progress.Load() >= goal, fmt.Errorf("%d acknowledgements, want %d", st.progress.Load(), goal)
	})
}

func (st *storm) stopped() bool {
	select {
	case <-st.stopping:
		return true
	default:
		return st.ctx.Err() != nil
	}
}

func (st *storm) doubt(format string, args ...any) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.doubts[strings.ReplaceAll(fmt.Sprintf(format, args...), st.server.Addr, "ADDRESS")]++
}

// produce writes idempotently, several batches in flight. Every record must be acknowledged: nothing here may fail.
func (st *storm) produce(id int, rng *rand.Rand) {
	c, err := kgo.NewClient(options(st.server.Addr, kgo.ProducerLinger(0), kgo.MaxBufferedRecords(64))...)
	if err != nil {
		st.t.Error(err)
		return
	}
	defer c.Close()
	for n := 0; !st.stopped(); n++ {
		r := recordOf(plainTopic, int32(rng.IntN(partitions)), fmt.Sprintf("p%d-%d-%s", id, n, filler(rng)))
		c.Produce(st.ctx, r, func(r *kgo.Record, err error) {
			if err != nil {
				st.t.Errorf("producer %d: %.20q: %v", id, r.Value, err)
				return
			}
			st.mu.Lock()
			st.acknowledged.add(st.t, r)
			st.mu.Unlock()
			st.progress.Add(1)
		})
		if n%16 == 0 {
			wait(1)
		}
	}
	if err := c.Flush(st.ctx); err != nil {
		st.t.Errorf("producer %d: flush: %v", id, err)
	}
}

// filler makes records of different sizes.
func filler(rng *rand.Rand) string { return strings.Repeat("x", rng.IntN(200)) }

// transact writes transactions to ledger, one of three aborted.
func (st *storm) transact(id int, rng *rand.Rand) {
	opts := options(st.server.Addr, kgo.TransactionalID(fmt.Sprint("writer-", id)), kgo.TransactionTimeout(patience), kgo.ProducerLinger(0))
	if id == 0 {
		opts = append(opts, oldTransactions())
	}
	c := st.transactional(opts)
	for n := 0; c != nil && !st.stopped(); n++ {
		if err := st.oneTransaction(c, fmt.Sprintf("w%d-%d", id, n), rng); err != nil {
			st.doubt("writer %d: %v", id, err)
			c.Close()
			c = st.transactional(opts)
		}
	}
	if c != nil {
		c.Close()
	}
}

// transactional returns a client that has ended what its predecessor left open.
func (st *storm) transactional(opts []kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(opts...)
	if err != nil {
		st.t.Error(err)
		return nil
	}
	st.initialize(c)
	return c
}

// initialize asks for the producer id, which aborts what the client's predecessor left open, until it is there.
func (st *storm) initialize(c *kgo.Client) {
	for st.ctx.Err() == nil {
		_, _, err := c.ProducerID(st.ctx)
		if err == nil {
			return
		}
		st.doubt("init: %v", err)
		wait(5)
	}
}

// oneTransaction returns an error if the client is of no use any more.
func (st *storm) oneTransaction(c *kgo.Client, name string, rng *rand.Rand) error {
	if err := c.BeginTransaction(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	tx := &transaction{at: map[position]string{}}
	var mu sync.Mutex
	var failed error
	for i := range 1 + rng.IntN(8) {
		r := recordOf(ledgerTopic, int32(rng.IntN(partitions)), fmt.Sprintf("%s-%d-%s", name, i, filler(rng)))
		c.Produce(st.ctx, r, func(r *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			tx.at[position{r.Topic, r.Partition, r.Offset}] = string(r.Value)
		})
	}
	if err := c.Flush(st.ctx); err != nil {
		return err
	}
	commit := failed == nil && rng.IntN(3) > 0
	err := c.EndTransaction(st.ctx, kgo.TransactionEndTry(commit))
	if commit {
		tx.outcome = committed
		if err != nil {
			tx.outcome = unknown
		}
	}
	st.mu.Lock()
	st.transactions = append(st.transactions, tx)
	st.mu.Unlock()
	st.progress.Add(int64(len(tx.at)))
	switch {
	case failed != nil:
		return fmt.Errorf("produce: %w", failed)
	case err != nil:
		return fmt.Errorf("end (commit %t): %w", commit, err)
	}
	return nil
}

// abandon leaves transactions open whose clients then are gone; only their timeout ends them.
func (st *storm) abandon(rng *rand.Rand) {
	for n := 0; !st.stopped(); n++ {
		c, err := kgo.NewClient(options(st.server.Addr, kgo.TransactionalID(fmt.Sprint("orphan-", n)), kgo.TransactionTimeout(time.Second), kgo.ProducerLinger(0))...)
		if err != nil {
			st.t.Error(err)
			return
		}
		if err := c.BeginTransaction(); err == nil {
			// It may have timed out before it was sent, so an error is no wonder.
			_ = c.ProduceSync(st.ctx, recordOf(ledgerTopic, int32(rng.IntN(partitions)), fmt.Sprint("orphan-", n))).FirstErr()
		}
		c.Close()
		select {
		case <-st.stopping:
		case <-st.ctx.Done():
		case <-time.After(700 * time.Millisecond):
		}
	}
}

// copy copies plain to copy, offsets in the same transactions, until everything is copied.
func (st *storm) copy(id int, rng *rand.Rand) {
	var s *kgo.GroupTransactSession
	defer func() {
		if s != nil {
			s.CloseAllowingRebalance()
		}
	}()
	for !st.copied() {
		if s == nil {
			var err error
			if s, err = kgo.NewGroupTransactSession(st.copierOptions(id)...); err != nil {
				st.t.Error(err)
				return
			}
			// Until that is done the predecessor's offsets may be unstable; the newcomer, which asks for stable ones,
			// would get none, so would not produce, which is when the client would do it by itself.
			st.initialize(s.Client())
		}
		if err := st.oneCopy(s, rng); err != nil {
			st.doubt("copier %d: %v", id, err)
			s.CloseAllowingRebalance()
			s = nil
		}
	}
}

// copierOptions make the first copier a static member, whose successor takes its place at once. What is left of another
// one that could not say farewell holds the group up until its session ends, so that is short.
func (st *storm) copierOptions(id int) []kgo.Opt {
	name := fmt.Sprint("copier-", id)
	opts := options(st.server.Addr, kgo.ConsumerGroup(copiers), kgo.ConsumeTopics(plainTopic),
		kgo.TransactionalID(name), kgo.TransactionTimeout(patience), kgo.ProducerLinger(0),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.HeartbeatInterval(200*time.Millisecond), kgo.SessionTimeout(6*time.Second), kgo.RebalanceTimeout(6*time.Second))
	if id == 0 {
		opts = append(opts, kgo.InstanceID(name))
	}
	return opts
}

func (st *storm) oneCopy(s *kgo.GroupTransactSession, rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(st.ctx, 300*time.Millisecond)
	defer cancel()
	fetches := s.PollRecords(ctx, 1+rng.IntN(100))
	fetches.EachError(func(topic string, p int32, err error) {
		st.fetchError("a copier", topic, p, err)
	})
	if fetches.NumRecords() == 0 {
		return nil
	}
	if err := s.Begin(); err != nil {
		return err
	}
	fetches.EachRecord(func(r *kgo.Record) {
		value := fmt.Sprintf("%d:%d:%s", r.Partition, r.Offset, r.Value)
		s.Produce(st.ctx, recordOf(copyTopic, (r.Partition+1)%partitions, value), nil)
	})
	done, err := s.End(st.ctx, kgo.TransactionEndTry(rng.IntN(4) > 0))
	if err != nil {
		return err
	}
	if done {
		st.copies.Add(1)
	}
	st.progress.Add(1)
	return nil
}

// copied reports whether the writers have stopped and the group's offsets are at plain's ends.
func (st *storm) copied() bool {
	if st.ctx.Err() != nil {
		return true
	}
	if !st.stopped() {
		return false
	}
	c, err := kgo.NewClient(options(st.server.Addr)...)
	if err != nil {
		return false
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(st.ctx, 5*time.Second)
	defer cancel()
	listed, err := listOffsets(ctx, c, plainTopic)
	if err != nil {
		return false
	}
	at, err := kadm.NewClient(c).FetchOffsets(ctx, copiers)
	if err != nil {
		return false
	}
	for p, o := range listed[plainTopic] {
		if got, ok := at.Lookup(plainTopic, p); o.end > 0 && (!ok || got.At != o.end) {
			return false
		}
	}
	return true
}

// fetchError judges what a reader was told. Broken connections are no wonder; a broker's refusal and lost data are.
func (st *storm) fetchError(who, topic string, p int32, err error) {
	var refusal *kerr.Error
	var loss *kgo.ErrDataLoss
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
	case errors.As(err, &refusal), errors.As(err, &loss):
		st.t.Errorf("%s got from %s/%d: %v", who, topic, p, err)
	default:
		st.doubt("%s got from %s: %v", who, topic, err)
	}
}

// watch reads ledger and copy read_committed all the time, over all restarts.
func (st *storm) watch(ctx context.Context) {
	c, err := kgo.NewClient(options(st.server.Addr, kgo.ConsumeTopics(ledgerTopic, copyTopic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))...)
	if err != nil {
		st.t.Error(err)
		return
	}
	defer c.Close()
	for ctx.Err() == nil {
		fetches := c.PollFetches(ctx)
		st.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) { st.early.add(st.t, r) })
		st.mu.Unlock()
		fetches.EachError(func(topic string, p int32, err error) {
			st.fetchError("the watching reader", topic, p, err)
		})
	}
}
