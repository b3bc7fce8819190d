//go:build peers

package power

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The topics: plain gets idempotent records, ledger transactions. Bookmarks is a group that only commits offsets.
const (
	plainTopic  = "plain"
	ledgerTopic = "ledger"
	partitions  = 4
	bookmarks   = "bookmarks"
)

// acked is a record that was acknowledged.
type acked struct {
	at    position
	value string
	life  int64 // even: sent and acknowledged within this life of the broker; odd: not known
}

// transaction is one of ledger's.
type transaction struct {
	values []string
	// asked: its commit was asked for. told: the answer was yes.
	asked, told bool
	life        int64 // as acked.life
}

// load is what the clients of a plant know.
type load struct {
	t        *testing.T
	plant    *plant
	durable  bool // what is acknowledged must stay
	ctx      context.Context
	stopping chan struct{}
	progress atomic.Int64 // acknowledgements
	life     atomic.Int64 // odd from just before a cut until the broker is back
	clients  sync.WaitGroup

	mu           sync.Mutex
	records      []acked
	transactions []*transaction
	seen         map[position]string // by a reader, read_committed, in ledger and plain
	bookmark     int64               // the newest offset whose commit was acknowledged
	doubts       map[string]int      // what clients were told that leaves them in doubt
}

// figures are what a load found at its end.
type figures struct{ cuts, records, transactions, seen, lostRecords, lostTransactions int }

func (f figures) String() string {
	return fmt.Sprintf("%d power cuts; acknowledged: %d records, %d of them lost, %d transactions, %d of them lost; seen by a reader: %d records",
		f.cuts, f.records, f.lostRecords, f.transactions, f.lostTransactions, f.seen)
}

// run puts a plant under load, cuts its power, and judges what is left. durable: nothing acknowledged may be lost.
func run(t *testing.T, p *plant, rng *rand.Rand, cuts int, durable bool) figures {
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	l := &load{t: t, plant: p, durable: durable, ctx: ctx, stopping: make(chan struct{}), seen: map[position]string{}, doubts: map[string]int{}}
	l.createTopics()
	readers, stopReading := context.WithCancel(ctx)
	l.launch(readers, rng)
	for range cuts {
		l.strike(rng)
	}
	l.advance(100)
	close(l.stopping)
	stopReading()
	l.wait()
	l.outage(rng)
	return l.judge()
}

// createTopics waits for a durable answer: with Durability write a topic, too, may be lost.
func (l *load) createTopics() {
	l.t.Helper()
	c, err := client(l.plant.Addr)
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	made, err := kadm.NewClient(c).CreateTopics(l.ctx, partitions, 1, nil, plainTopic, ledgerTopic)
	if err = errors.Join(err, made.Error()); err != nil {
		l.t.Fatal(err)
	}
	if !l.durable { // a broker that stops in order leaves nothing unsynced
		if err := l.plant.Interrupt(); err != nil {
			l.t.Fatal(err)
		}
		l.plant.Again()
	}
}

func (l *load) launch(readers context.Context, rng *rand.Rand) {
	for i := range 3 {
		own := rand.New(rand.NewPCG(rng.Uint64(), 1))
		l.clients.Go(func() { l.produce(i, own) })
		l.clients.Go(func() { l.transact(i, rand.New(rand.NewPCG(own.Uint64(), 2))) })
	}
	l.clients.Go(l.mark)
	l.clients.Go(l.churn)
	if l.durable { // a reader of what is not durable must expect to be led astray
		l.clients.Go(func() { l.watch(readers) })
	}
}

// strike cuts the power when the clients have got some way, and sometimes again in the recovery.
func (l *load) strike(rng *rand.Rand) {
	if rng.IntN(4) == 0 {
		pause(rng.IntN(8)) // hardly anything was answered since the start
	} else {
		l.advance(rng.Int64N(1500))
		pause(rng.IntN(20))
	}
	l.outage(rng)
}

func (l *load) outage(rng *rand.Rand) {
	l.life.Add(1)
	l.plant.cut()
	for range rng.IntN(3) {
		l.plant.Launch()
		pause(rng.IntN(30))
		l.plant.cut()
	}
	l.plant.Again()
	l.life.Add(1)
}

// advance waits for n more acknowledgements.
func (l *load) advance(n int64) {
	l.t.Helper()
	goal := l.progress.Load() + n
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	eventually(l.t, ctx, "progress", func() (bool, error) {
		return l.progress.Load() >= goal, fmt.Errorf("%d acknowledgements, want %d", l.progress.Load(), goal)
	})
}

func (l *load) wait() {
	l.t.Helper()
	done := make(chan struct{})
	go func() { l.clients.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		l.t.Fatal("the clients did not finish")
	}
}

func (l *load) stopped() bool {
	select {
	case <-l.stopping:
		return true
	default:
		return l.ctx.Err() != nil
	}
}

func (l *load) doubt(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubts[strings.ReplaceAll(fmt.Sprintf(format, args...), l.plant.Addr, "ADDRESS")]++
}

// since returns begin if the broker has lived without a cut from then to now, else something odd.
func (l *load) since(begin int64) int64 {
	if l.life.Load() != begin {
		return -1
	}
	return begin // odd in an outage, in which several brokers may have lived
}

func record(topic string, rng *rand.Rand, value string) *kgo.Record {
	value += "-" + strings.Repeat("x", rng.IntN(300))
	return &kgo.Record{Topic: topic, Partition: int32(rng.IntN(partitions)), Value: []byte(value)}
}

// produce writes idempotently, several batches in flight.
func (l *load) produce(id int, rng *rand.Rand) {
	c, err := client(l.plant.Addr, kgo.MaxBufferedRecords(64))
	if err != nil {
		l.t.Error(err)
		return
	}
	defer c.Close()
	l.initialize(c) // what the client does by itself it does not try often enough
	for n := 0; !l.stopped(); n++ {
		begin := l.life.Load()
		c.Produce(l.ctx, record(plainTopic, rng, fmt.Sprintf("p%d-%d", id, n)), func(r *kgo.Record, err error) {
			switch {
			case err == nil:
				l.mu.Lock()
				l.records = append(l.records, acked{at(r), string(r.Value), l.since(begin)})
				l.mu.Unlock()
				l.progress.Add(1)
			case l.durable:
				l.t.Errorf("producer %d: %.20q: %v", id, r.Value, err)
			default:
				l.doubt("a producer was told: %v", err)
			}
		})
		if n%4 == 0 {
			pause(1)
		}
	}
	if err := c.Flush(l.ctx); err != nil {
		l.t.Errorf("producer %d: flush: %v", id, err)
	}
}

// initialize asks for the producer id until it is there.
func (l *load) initialize(c *kgo.Client) {
	for !l.stopped() {
		_, _, err := c.ProducerID(l.ctx)
		if err == nil {
			return
		}
		l.doubt("init was told: %v", err)
		pause(5)
	}
}

// transact writes transactions to ledger, one of four aborted.
func (l *load) transact(id int, rng *rand.Rand) {
	for n := 0; !l.stopped(); {
		c, err := client(l.plant.Addr, kgo.TransactionalID(fmt.Sprint("writer-", id)), kgo.TransactionTimeout(patience))
		if err != nil {
			l.t.Error(err)
			return
		}
		l.initialize(c)
		for err == nil && !l.stopped() {
			n++
			err = l.oneTransaction(c, fmt.Sprintf("w%d-%d", id, n), rng)
		}
		if err != nil {
			l.doubt("a writer was told: %v", err)
		}
		c.Close()
	}
}

// oneTransaction returns an error if the client is of no use any more.
func (l *load) oneTransaction(c *kgo.Client, name string, rng *rand.Rand) error {
	begin := l.life.Load()
	if err := c.BeginTransaction(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	tx := &transaction{asked: rng.IntN(4) > 0}
	var records []*kgo.Record
	for i := range 1 + rng.IntN(8) {
		r := record(ledgerTopic, rng, fmt.Sprintf("%s-%d", name, i))
		records = append(records, r)
		tx.values = append(tx.values, string(r.Value))
	}
	failed := c.ProduceSync(l.ctx, records...).FirstErr()
	tx.asked = tx.asked && failed == nil
	err := c.EndTransaction(l.ctx, kgo.TransactionEndTry(tx.asked))
	tx.told = tx.asked && err == nil
	tx.life = l.since(begin)
	l.mu.Lock()
	l.transactions = append(l.transactions, tx)
	l.mu.Unlock()
	l.progress.Add(int64(len(records)))
	if failed != nil {
		return fmt.Errorf("produce: %w", failed)
	}
	return err
}

// mark commits growing offsets.
func (l *load) mark() {
	c, err := client(l.plant.Addr)
	if err != nil {
		l.t.Error(err)
		return
	}
	defer c.Close()
	for n := int64(1); !l.stopped(); n++ {
		offsets := kadm.Offsets{}
		offsets.AddOffset(plainTopic, 0, n, -1)
		if err := kadm.NewClient(c).CommitAllOffsets(l.ctx, bookmarks, offsets); err != nil {
			l.doubt("an offset commit was told: %v", err)
		} else {
			l.mu.Lock()
			l.bookmark = n
			l.mu.Unlock()
		}
		pause(2)
	}
}

// churn makes topics, fills them and deletes them when their records have moved to files of their own.
func (l *load) churn() {
	c, err := client(l.plant.Addr, kgo.AllowAutoTopicCreation(), kgo.DisableIdempotentWrite(), kgo.UnknownTopicRetries(3))
	if err != nil {
		l.t.Error(err)
		return
	}
	defer c.Close()
	const kept = 4
	name := func(n int) string { return fmt.Sprint("fleeting-", n) }
	for n := 0; !l.stopped(); n++ {
		ctx, cancel := context.WithTimeout(l.ctx, time.Second) // a lost topic is not waited for
		if _, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, nil, name(n)); err != nil {
			l.doubt("a topic's creation was told: %v", err)
		}
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: name(n), Value: make([]byte, 2000)}).FirstErr(); err != nil {
			l.doubt("a fleeting topic's producer was told: %v", err)
		}
		if n >= kept {
			if _, err := kadm.NewClient(c).DeleteTopic(ctx, name(n-kept)); err != nil {
				l.doubt("a topic's deletion was told: %v", err)
			}
		}
		c.PurgeTopicsFromClient(name(n))
		cancel()
	}
}

// watch reads all the time: what it sees must stay.
func (l *load) watch(ctx context.Context) {
	c, err := client(l.plant.Addr, kgo.ConsumeTopics(ledgerTopic, plainTopic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		l.t.Error(err)
		return
	}
	defer c.Close()
	for ctx.Err() == nil {
		fetches := c.PollFetches(ctx)
		l.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			if old, ok := l.seen[at(r)]; ok && old != string(r.Value) {
				l.t.Errorf("%v held %.20q, then %.20q", at(r), old, r.Value)
			}
			l.seen[at(r)] = string(r.Value)
		})
		l.mu.Unlock()
		fetches.EachError(func(topic string, p int32, err error) {
			var refusal *kerr.Error
			var loss *kgo.ErrDataLoss
			if errors.As(err, &refusal) || errors.As(err, &loss) {
				l.t.Errorf("a reader was told of %s/%d: %v", topic, p, err)
			}
		})
	}
}

// judge compares what is there with what was promised.
func (l *load) judge() figures {
	l.t.Helper()
	l.endOpenTransactions()
	plain := readAll(l.t, l.ctx, l.plant.Addr, kgo.ReadUncommitted(), plainTopic)
	ledger := readAll(l.t, l.ctx, l.plant.Addr, kgo.ReadCommitted(), ledgerTopic)
	for _, topic := range []map[position]string{plain, ledger} {
		once := map[string]bool{}
		for _, value := range topic {
			if once[value] {
				l.t.Errorf("%.20q is there twice", value)
			}
			once[value] = true
		}
	}
	f := figures{cuts: l.plant.cuts, records: len(l.records), seen: len(l.seen)}
	for pos, value := range l.seen {
		if plain[pos] != value && ledger[pos] != value {
			l.t.Errorf("%v was seen to hold %.20q and does not", pos, value)
		}
	}
	l.judgeRecords(plain, &f)
	l.judgeTransactions(ledger, &f)
	l.judgeBookmark()
	for what, n := range l.doubts {
		l.t.Logf("%d× %s", n, what)
	}
	l.t.Log(f)
	return f
}

// endOpenTransactions takes over the writers' names, so that what they left open is aborted.
func (l *load) endOpenTransactions() {
	for i := range 3 {
		c, err := client(l.plant.Addr, kgo.TransactionalID(fmt.Sprint("writer-", i)))
		if err == nil {
			_, _, err = c.ProducerID(l.ctx)
			c.Close()
		}
		if err != nil {
			l.t.Fatal(err)
		}
	}
}

// judgeRecords: nothing acknowledged is missing; if it may, what is missing of one life of the broker is the end.
func (l *load) judgeRecords(plain map[position]string, f *figures) {
	slices.SortFunc(l.records, func(a, b acked) int { return int(a.at.offset - b.at.offset) })
	type part struct {
		life      int64
		partition int32
	}
	missing := map[part]acked{}
	for _, r := range l.records {
		in := part{r.life, r.at.partition}
		first, hole := missing[in]
		switch there := plain[r.at] == r.value; {
		case !there:
			f.lostRecords++
			missing[in] = r
			if l.durable {
				l.t.Errorf("%v: %.20q was acknowledged and is lost", r.at, r.value)
			}
		case hole && r.life%2 == 0:
			l.t.Errorf("%v is there, but %v, acknowledged in the same life, is not", r.at, first.at)
		}
	}
}

// judgeTransactions: each is there as a whole or not at all, as its writer was told.
func (l *load) judgeTransactions(ledger map[position]string, f *figures) {
	there := map[string]bool{}
	for _, value := range ledger {
		there[value] = true
	}
	for _, tx := range l.transactions {
		n := 0
		for _, value := range tx.values {
			if there[value] {
				n++
			}
			delete(there, value)
		}
		if tx.told {
			f.transactions++
		}
		switch whole := n == len(tx.values); {
		case n > 0 && !tx.asked:
			l.t.Errorf("the transaction of %.20q was never to be committed, and is there", tx.values[0])
		case n > 0 && !whole && (l.durable || tx.life%2 == 0):
			l.t.Errorf("%d of %d records of the transaction of %.20q are there", n, len(tx.values), tx.values[0])
		case tx.told && !whole:
			f.lostTransactions++
			if l.durable {
				l.t.Errorf("the transaction of %.20q was committed and is lost", tx.values[0])
			}
		}
	}
	for value := range there {
		l.t.Errorf("%.20q is there and nobody has written it", value)
	}
}

func (l *load) judgeBookmark() {
	c, err := client(l.plant.Addr)
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	offsets, err := kadm.NewClient(c).FetchOffsets(l.ctx, bookmarks)
	if err != nil {
		l.t.Fatal(err)
	}
	got, _ := offsets.Lookup(plainTopic, 0)
	if l.durable && got.At < l.bookmark {
		l.t.Errorf("the group is at offset %d; %d was acknowledged", got.At, l.bookmark)
	}
}
