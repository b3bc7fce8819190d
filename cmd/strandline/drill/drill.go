// Package drill proves exactly-once on a broker that is killed: workers move keyed records from one topic to another,
// each with its offsets in a transaction, some of them aborted on purpose, while the broker is killed and started again
// in the midst of it, and a worker with each. Afterwards a read_committed reader must find every key once. What a worker believes counts for
// nothing: only what the broker holds at the end is judged.
package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Config says what is moved, who is killed and how. Zero values take the defaults in the comments.
type Config struct {
	Records    int64         // keys to move; default 200,000, at most MaxRecords
	Workers    int           // default 4
	Partitions int32         // of both topics; default 8
	Kills      int           // kills while records are left; 0 means none
	Every      time.Duration // time between an answer of the broker and its next kill; default 3 s

	// The drill's own broker: the command that serves (such as "strandline serve", without flags), the folder of its data
	// (default: a temporary one, removed unless the drill fails) and its durability (default fsync).
	Serve      []string
	DataDir    string
	Durability string

	// Another broker, in place of the drill's own: its addresses and the shell commands that start, kill and restart it.
	// Without StartCmd it must be running. Without KillCmd, what StartCmd or RestartCmd started is killed with SIGKILL,
	// with all of its process group. Without RestartCmd it is started by StartCmd again.
	Brokers    []string
	StartCmd   string
	KillCmd    string
	RestartCmd string

	Out io.Writer // progress and result; default: nowhere
}

const (
	// MaxRecords bounds the memory of the last check, which keeps a bit for each key.
	MaxRecords = 1_000_000_000

	maxWorkers    = 256
	maxKills      = 10_000
	maxPartitions = 1_000

	// abortEvery is which transactions are aborted on purpose.
	abortEvery = 7
	// maxPerTxn bounds the records of a transaction. Few records mean many transactions for a kill to meet.
	maxPerTxn = 50
	// transactionTimeout is also how long the last transaction of a lost worker may hold back the end.
	transactionTimeout = 30 * time.Second
	// stuckAfter is how long nothing may move while the broker answers.
	stuckAfter = 2 * time.Minute
	// watchEvery is how often the broker is asked how far the group is.
	watchEvery = 100 * time.Millisecond
)

func (c Config) orDefaults() Config {
	if c.Records == 0 {
		c.Records = 200_000
	}
	if c.Workers == 0 {
		c.Workers = 4
	}
	if c.Partitions == 0 {
		c.Partitions = 8
	}
	if c.Every == 0 {
		c.Every = 3 * time.Second
	}
	if c.Durability == "" {
		c.Durability = "fsync"
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Workers >= 1 && c.Workers <= maxWorkers, "%d workers: use 1 to %d", c.Workers, maxWorkers)
	check(c.Kills >= 0 && c.Kills <= maxKills, "%d kills: use 0 to %d", c.Kills, maxKills)
	check(c.Partitions >= 2 && c.Partitions <= maxPartitions, "%d partitions: use 2 to %d", c.Partitions, maxPartitions)
	check(c.Every > 0, "a kill every %v: use a positive time", c.Every)
	least := c.leastRecords()
	check(c.Records >= least, "--records %d is too few: %d workers and %d kills inside the work need at least %d", c.Records, c.Workers, c.Kills, least)
	check(c.Records <= MaxRecords, "--records %d is too many: at most %d", c.Records, MaxRecords)
	own := len(c.Brokers) == 0
	commands := c.StartCmd != "" || c.KillCmd != "" || c.RestartCmd != ""
	check(!own || !commands, "commands for another broker without its addresses: name them with --brokers")
	check(own || c.DataDir == "", "a data folder for a broker that is not the drill's own: leave out --data-dir or --brokers")
	check(own || c.Kills == 0 || c.KillCmd != "" || c.StartCmd != "",
		"no way to kill the broker: give --kill-cmd, or --start-cmd, which the drill then kills, or --kills 0")
	check(own || c.Kills == 0 || c.RestartCmd != "" || c.StartCmd != "", "no way to start the broker again: give --restart-cmd")
	return errors.Join(errs...)
}

// leastRecords is how many records it takes so that each kill finds transactions of every worker to interrupt.
func (c Config) leastRecords() int64 { return int64(c.Workers) * int64(c.Kills+1) * 4 }

// recordsPerTxn is how many records a transaction has at most.
func (c Config) recordsPerTxn() int { return int(min(maxPerTxn, c.Records/c.leastRecords())) }

// drill is a run.
type drill struct {
	Config
	name    string // of this run: prefix of its topics, group and transactional ids
	target  *target
	screen  *screen
	admin   *kadm.Client
	perTxn  int
	began   time.Time
	kills   []kill
	ends    []int64        // of the source's partitions
	seeded  atomic.Int64   // records of the source that are acknowledged
	moved   []atomic.Int64 // how far the group is in each of them, as committed offsets
	limit   atomic.Int64   // no transaction begins at or above it, so that the next kill still finds work
	done    chan struct{}  // closed when everything has moved
	doomed  atomic.Int64   // workers that shall leave their next transaction open and come back with a new client
	judging atomic.Bool    // no transaction begins, until it is known what a kill has left
	gone    []string       // what had been acknowledged before a kill and was not there after it
	counts  counts
	errMu   sync.Mutex
	reasons map[string]int // errors that workers saw
}

// counts are of transactions, as their workers saw them end.
type counts struct {
	committed, aborted, givenUp, unknown atomic.Int64

	died     atomic.Int64 // workers, on purpose
	replaced atomic.Int64 // clients that failed
	kills    atomic.Int64
	began    atomic.Int64 // when the workers did, Unix ms
	down     atomic.Bool  // the broker is
}

// kill is one of the broker, and what had been moved by then.
type kill struct {
	at    time.Duration // since the workers began
	moved int64
	down  time.Duration // until it answered again
	last  bool          // after the work
}

func (d *drill) source() string { return d.name + "-in" }
func (d *drill) output() string { return d.name + "-out" }

// Run runs a drill. It returns nil if everything held; a *FailedError if the broker lost, doubled or kept open
// something; another error if the drill could not be run to its end. The broker that it started is gone when it returns.
func Run(ctx context.Context, c Config) (err error) {
	c = c.orDefaults()
	if err := c.validate(); err != nil {
		return err
	}
	d := &drill{
		Config: c, name: fmt.Sprintf("drill-%08x", rand.Uint32()), screen: newScreen(c.Out), done: make(chan struct{}),
		moved: make([]atomic.Int64, c.Partitions), reasons: map[string]int{},
		perTxn: c.recordsPerTxn(),
	}
	if d.target, err = newTarget(c); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.target.close(err == nil || ctx.Err() != nil)) }()
	if err := d.target.start(ctx); err != nil {
		return fmt.Errorf("%w%s", err, d.target.lastWords())
	}
	client, err := kgo.NewClient(clientOptions(d.target.addrs)...)
	if err != nil {
		return err
	}
	defer client.Close()
	d.admin = kadm.NewClient(client)
	stop := d.screen.live(d.status)
	err = d.run(ctx)
	stop()
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted after %d of %d records: %w", d.movedSum(), d.Records, context.Cause(ctx))
	}
	var failed *FailedError
	if err != nil && !errors.As(err, &failed) {
		return fmt.Errorf("%w%s", err, d.target.lastWords())
	}
	return err
}

func (d *drill) run(ctx context.Context) error {
	d.screen.line("broker %s, %d records, %d workers, %d partitions, kills: %d", d.target, d.Records, d.Workers, d.Partitions, d.Kills)
	if err := d.seed(ctx); err != nil {
		return err
	}
	err := d.move(ctx)
	if err == nil && d.Kills > 0 {
		// What is judged must be what the broker finds after a kill, not what it has in memory.
		err = d.strike(ctx, true)
	}
	if err != nil && (ctx.Err() != nil || len(d.gone) == 0) {
		return err
	}
	judged := d.checkKills()
	if err == nil {
		var found checks
		found, err = d.check(ctx)
		judged = append(judged, found...)
	}
	if ctx.Err() != nil {
		return err
	}
	d.report(judged) // also where the reader could not get to the end: a transaction that hangs may be why
	if failed := judged.failed(); failed != nil || err != nil {
		return errors.Join(failed, err)
	}
	d.tidy(ctx)
	return nil
}

// move runs the workers until everything has moved, and kills the broker meanwhile.
func (d *drill) move(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	d.began = time.Now()
	d.counts.began.Store(d.began.UnixMilli())
	d.limit.Store(d.limitBefore(0))
	for id := range d.Workers {
		workers.Go(func() { d.work(ctx, id) })
	}
	if err := d.conduct(ctx); err != nil {
		return err
	}
	close(d.done)
	workers.Wait()
	return ctx.Err()
}

// share is how many records have moved when kill k is due at the latest.
func (d *drill) share(k int) int64 { return d.Records * int64(k+1) / int64(d.Kills+1) }

// limitBefore is how many records may move before kill k has struck. It leaves room to be overshot by a transaction of
// each worker.
func (d *drill) limitBefore(k int) int64 {
	if k >= d.Kills {
		return math.MaxInt64
	}
	return d.Records * int64(2*k+3) / int64(2*(d.Kills+1))
}

// conduct watches how far the group is and kills the broker when that is due: after Every, if anything has moved since
// its last start, and at the latest when this kill's share of the records has moved.
func (d *drill) conduct(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	up, since, atStart := time.Now(), time.Now(), int64(0)
	wait := d.jitter()
	for last := int64(0); ; {
		if err := d.target.failure(); err != nil {
			return err
		}
		d.look(ctx)
		moved := d.movedSum()
		if moved >= d.Records {
			return nil
		}
		if moved > last {
			last, since = moved, time.Now()
		}
		if time.Since(since) > stuckAfter {
			return fmt.Errorf("stuck: the broker answers, but nothing has moved for %v: %s; workers saw: %s",
				stuckAfter, d.positions(), d.reasonsText())
		}
		if k := len(d.kills); k < d.Kills && (moved >= d.share(k) || moved > atStart && time.Since(up) >= wait) {
			if err := d.strike(ctx, false); err != nil {
				return err
			}
			d.limit.Store(d.limitBefore(len(d.kills)))
			d.look(ctx)
			up, since, wait, atStart = time.Now(), time.Now(), d.jitter(), d.movedSum()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// jitter spreads the kills over the phases of whatever else is periodic.
func (d *drill) jitter() time.Duration {
	return time.Duration(float64(d.Every) * (0.75 + rand.Float64()/2))
}

// strike kills the broker, starts it again, waits until it answers, and looks for what it had acknowledged. No transaction
// begins meanwhile: it could make up for what is gone.
func (d *drill) strike(ctx context.Context, last bool) error {
	k := kill{at: time.Since(d.began), moved: d.movedSum(), last: last}
	died := time.Now()
	if !last {
		d.doomed.Add(1)
	}
	d.counts.down.Store(true)
	defer d.counts.down.Store(false)
	if err := d.target.kill(ctx); err != nil {
		return err
	}
	d.judging.Store(true)
	defer d.judging.Store(false)
	committed := d.positionsMoved()
	if err := d.target.again(ctx); err != nil {
		return err
	}
	k.down = time.Since(died)
	gone := d.goneSince(ctx, committed)
	if err := ctx.Err(); err != nil {
		return err
	}
	d.kills = append(d.kills, k)
	d.counts.kills.Add(1)
	if gone != "" {
		d.gone = append(d.gone, fmt.Sprintf("kill %d: %s", len(d.kills), gone))
	}
	if last {
		d.screen.line("%8s  killed once more after the last record, answers again after %s", seconds(k.at), seconds(k.down))
	} else {
		d.screen.line("%8s  kill %d of %d with %d records left, answers again after %s",
			seconds(k.at), len(d.kills), d.Kills, d.Records-k.moved, seconds(k.down))
	}
	return nil
}

// look asks the broker how far the group is. No answer is no news.
func (d *drill) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	offsets, err := d.admin.FetchOffsetsForTopics(ctx, d.name, d.source())
	if err != nil {
		return
	}
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.Topic == d.source() {
			d.reached(o.Partition, o.At)
		}
	})
}

// reached notes a committed offset. Offsets of the source are numbers of records: it holds no markers.
func (d *drill) reached(partition int32, offset int64) {
	if partition < 0 || int(partition) >= len(d.moved) {
		return
	}
	at := &d.moved[partition]
	for old := at.Load(); offset > old; old = at.Load() {
		if at.CompareAndSwap(old, offset) {
			return
		}
	}
}

func (d *drill) movedSum() int64 {
	var sum int64
	for _, at := range d.positionsMoved() {
		sum += at
	}
	return sum
}

// positionsMoved is how far the group is in each partition.
func (d *drill) positionsMoved() []int64 {
	all := make([]int64, len(d.moved))
	for p := range d.moved {
		all[p] = d.moved[p].Load()
	}
	return all
}

// tidy removes what the drill made on a broker that goes on living.
func (d *drill) tidy(ctx context.Context) {
	if len(d.Brokers) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := d.admin.DeleteTopics(ctx, d.source(), d.output())
	_, groupErr := d.admin.DeleteGroups(ctx, d.name) // not every broker can
	if err != nil {
		d.screen.line("topics %s and %s were not deleted: %v", d.source(), d.output(), errors.Join(err, groupErr))
	}
}

func clientOptions(addrs []string, more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(addrs...), kgo.ClientID("strandline-drill"),
		kgo.DialTimeout(2 * time.Second),
		kgo.RetryBackoffFn(func(n int) time.Duration { return min(time.Second, 20*time.Millisecond<<min(n, 6)) }),
		kgo.RequestRetries(math.MaxInt32), kgo.RetryTimeout(time.Minute),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}, more...)
}
