//go:build peers

package broker

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/test/peers"
)

// TestKilledAtEveryPoint lets a broker die at each of its failpoints while each of drilledRequests is under way. The client
// of before the crash, which has heard nothing, sends the same bytes to the broker that comes back, is judged by what Kafka
// answers then, goes on with its producer id, epoch and sequences, and commits: read_committed shows every record
// once, the offsets are there, and no transaction is left open.
func TestKilledAtEveryPoint(t *testing.T) {
	bin := peers.Binary(t, "./test/broker/tight", "-tags", "failpoints")
	var points []string
	for _, p := range failpoint.Points {
		if p.In == failpoint.Broker {
			points = append(points, p.Name)
		}
	}
	var cells, deaths atomic.Int64
	t.Run("while", func(t *testing.T) {
		for _, r := range drilledRequests {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				quiet, busy := startDrilled(t, bin, quietJournal), startDrilled(t, bin, busyJournal)
				busy.fillUntilSnapshot()
				for _, point := range points {
					d := quiet
					if isBusy(point) {
						d = busy
					}
					d.play(r, point)
					cells.Add(1)
				}
				deaths.Add(quiet.deaths + busy.deaths)
			})
		}
	})
	t.Logf("%d requests × %d failpoints: %d cells played, in which the broker died %d times", len(drilledRequests), len(points),
		cells.Load(), deaths.Load())
}

// The sizes of the journal. A quiet broker moves nothing out of it, so that nothing but the request passes a point on the way
// of requests; a busy one always moves batches, stores snapshots and frees segments.
const (
	quietJournal = 1 << 30
	busyJournal  = 256 << 10
)

// The points on the way of a request, in its order. At the first the state has moved and nothing of it is written.
var onTheWay = []string{
	"sequencer.decided", "journal.written", "journal.unsynced", "journal.synced", "sequencer.durable", "sequencer.published",
}

// isRecovering says that a point is passed by a broker that starts.
func isRecovering(point string) bool {
	return strings.HasPrefix(point, "recovery.") || point == "engine.incarnation"
}

// isBusy says that a point needs sealed segments or a snapshot.
func isBusy(point string) bool {
	return point == "recovery.restored" || !isRecovering(point) && !slices.Contains(onTheWay, point)
}

// drilled is a broker that can be told where to die.
type drilled struct {
	*server
	control io.Writer
	atStart string // what the next start is armed with
	hits    map[string]int
	deaths  int64
}

func startDrilled(t testing.TB, bin string, journalBytes int) *drilled {
	t.Helper()
	d := &drilled{hits: map[string]int{}}
	d.server = unopened(t, func(addr, dir string) []string {
		return []string{bin, addr, dir, "fsync", "0", fmt.Sprint(journalBytes)}
	})
	d.Prepare = func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), failpoint.Variable+"="+d.atStart)
		var err error
		if d.control, err = cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}
	d.Open()
	return d
}

// arm lets the broker die the next time that it passes point.
func (d *drilled) arm(point string) { d.armAt(point, 1) }

func (d *drilled) armAt(point string, count int) {
	d.T.Helper()
	fmt.Fprintf(d.control, "%s:%d\n", point, count)
	d.WaitLine(d.T, fmt.Sprintf("armed %s:%d", point, count))
}

// buried waits until the broker is dead, of that point.
func (d *drilled) buried(point string) {
	d.T.Helper()
	_ = d.Wait()
	d.hits[point]++
	d.deaths++
	if n := strings.Count(d.Stderr(), "failpoint "+point+" hit "); n != d.hits[point] {
		d.T.Fatalf("the broker died, or hung, elsewhere than at %s (%d hits of it, want %d)", point, n, d.hits[point])
	}
}

// heard is what is known of whether the broker had carried out the request that is sent again.
type heard int

const (
	no heard = iota
	yes
	maybe
)

// cell is one request at one failpoint: the client, and what it knows.
type cell struct {
	*producer
	d                  *drilled
	topic, group       string
	carried            heard
	old                *producer     // whom the request fences
	first              kmsg.Response // what was answered before the crash, and lost
	open, want         [2][]string
	openOffset, offset int64 // -1: none
}

// drilledRequest is a request of a transaction.
type drilledRequest struct {
	name    string
	version int
	before  func(*cell)              // what the client did until then
	request func(*cell) kmsg.Request // sent before and after the crash
	found   func(*cell)              // what the broker holds when it is back, before anybody has asked for anything
	judge   func(*cell, kmsg.Response)
	after   func(*cell) // what the client does then; at last it goes on as always
	// unwritten requests move no durable state, so they pass none of the journal's points: the broker is killed when it has answered.
	unwritten bool
}

// play is a cell of the matrix.
func (d *drilled) play(r drilledRequest, point string) {
	d.T.Helper()
	id := fmt.Sprintf("%s at %s", r.name, point)
	name := strings.NewReplacer(" ", "-", ",", "").Replace(id)
	c := &cell{d: d, topic: name, group: name, openOffset: -1, offset: -1}
	c.producer = &producer{t: d.T, s: d.server, name: id, implicit: r.version == 2, id: -1, epoch: -1}
	d.createTopic(c.topic, 2)
	if r.before != nil {
		r.before(c)
	}
	req := r.request(c)
	switch {
	case slices.Contains(onTheWay, point):
		d.killOnTheWay(c, r, req, point)
		if c.carried = yes; point == onTheWay[0] {
			c.carried = no
		}
	case isRecovering(point):
		d.killOnTheWay(c, r, req, "journal.unsynced")
		if c.carried = yes; isBusy(point) {
			c.carried = maybe // something else may have passed the point before
		}
		d.atStart = point + ":1"
		d.Launch()
		d.buried(point)
		d.atStart = ""
	default:
		d.killInTheHouse(c, req, point)
		if c.carried = maybe; c.first != nil {
			c.carried = yes
		}
	}
	d.Again()
	if r.found != nil {
		r.found(c)
	}
	r.judge(c, c.ask(req))
	if r.after != nil {
		r.after(c)
	}
	c.put(1, "on")
	c.putOffset(c.offset + 10)
	c.finish(true)
	c.put(0, "last")
	c.finish(true)
	c.check()
}

// killOnTheWay lets the broker die while the request is under way.
func (d *drilled) killOnTheWay(c *cell, r drilledRequest, req kmsg.Request, point string) {
	d.T.Helper()
	conn := dial(d.T, d.Addr)
	defer conn.conn.Close()
	d.arm(point)
	resp, err := conn.tryAsk(req)
	if err == nil && r.unwritten && slices.Contains(onTheWay[:4], point) {
		c.first = resp
		d.Kill()
		return
	}
	if err == nil {
		d.T.Fatalf("%s was answered, though the broker was to die at %s: %+v", kmsg.NameForKey(req.Key()), point, resp)
	}
	d.buried(point)
}

// killInTheHouse lets the broker die in its housekeeping; the request is in the midst of much else.
func (d *drilled) killInTheHouse(c *cell, req kmsg.Request, point string) {
	d.T.Helper()
	conn, filler := dial(d.T, d.Addr), dial(d.T, d.Addr)
	defer conn.conn.Close()
	defer filler.conn.Close()
	d.arm(point)
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		for {
			if _, err := filler.tryAsk(filling()); err != nil {
				return
			}
		}
	}()
	if resp, err := conn.tryAsk(req); err == nil {
		c.first = resp
	}
	d.buried(point)
	<-filled
}

const fillerTopic = "filler"

// filling is a Produce of some KiB to four partitions.
func filling() *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 11, -1
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = fillerTopic
	for p := range int32(4) {
		b := record.NewBuilder()
		b.Add(time.Now().UnixMilli(), nil, make([]byte, busyJournal/40))
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = p, b.Append(nil)
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

// fillUntilSnapshot writes until there is a snapshot.
func (d *drilled) fillUntilSnapshot() {
	d.T.Helper()
	d.createTopic(fillerTopic, 4)
	conn := dial(d.T, d.Addr)
	defer conn.conn.Close()
	eventually(d.T, within(d.T, 2*patience), "a snapshot", func() (bool, error) {
		conn.ask(filling())
		names, err := filepath.Glob(filepath.Join(d.dir, "journal", "*.snapshot"))
		return len(names) > 0, err
	})
}

func (d *drilled) createTopic(name string, partitions int32) {
	d.T.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 5
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	req.Topics = append(req.Topics, topic)
	conn := dial(d.T, d.Addr)
	defer conn.conn.Close()
	if code := conn.ask(req).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 {
		d.T.Fatalf("create topic %s: %v", name, kerr.ErrorForCode(code))
	}
}

// begin makes the client, with a transaction behind it.
func (c *cell) begin() {
	c.t.Helper()
	if code := c.init(time.Minute); code != 0 {
		c.t.Fatalf("%s: InitProducerId: %v", c.name, kerr.ErrorForCode(code))
	}
	c.put(0, "first")
	c.putOffset(1)
	c.finish(true)
}

// beginOpen is begin, and another transaction that is open.
func (c *cell) beginOpen() {
	c.t.Helper()
	c.begin()
	c.put(0, "a")
	c.put(1, "b")
	c.putOffset(5)
}

// put writes a record in the transaction.
func (c *cell) put(partition int32, value string) {
	c.t.Helper()
	c.mustWrite(c.topic, partition, value)
	c.open[partition] = append(c.open[partition], value)
}

// putOffset puts the group's offset in partition 0 into the transaction.
func (c *cell) putOffset(offset int64) {
	c.t.Helper()
	if code := c.sendOffset(c.group, c.topic, 0, offset); code != 0 {
		c.t.Fatalf("%s: offset %d: %v", c.name, offset, kerr.ErrorForCode(code))
	}
	c.openOffset = offset
}

// finish ends the transaction.
func (c *cell) finish(commit bool) {
	c.t.Helper()
	c.mustEnd(commit)
	c.settle(commit)
}

// settle notes that the transaction is over.
func (c *cell) settle(commit bool) {
	if commit {
		for p := range c.open {
			c.want[p] = append(c.want[p], c.open[p]...)
		}
		if c.openOffset >= 0 {
			c.offset = c.openOffset
		}
	}
	c.open, c.openOffset = [2][]string{}, -1
}

// is checks a number that the request was answered with: fresh if it was carried out just now, again if before the crash.
func (c *cell) is(what string, got, fresh, again int64) {
	c.t.Helper()
	if c.carried != yes && got == fresh || c.carried != no && got == again {
		return
	}
	c.t.Errorf("%s: %s is %d; want %d, or %d if it had been carried out (%d: 0 it had not, 1 it had, 2 unknown)",
		c.name, what, got, fresh, again, c.carried)
}

// code checks the request's error code.
func (c *cell) code(got int16, fresh, again *kerr.Error) {
	c.t.Helper()
	number := func(e *kerr.Error) int64 {
		if e == nil {
			return 0
		}
		return int64(e.Code)
	}
	c.is(fmt.Sprintf("the error code (%v)", kerr.ErrorForCode(got)), int64(got), number(fresh), number(again))
}

// check compares what everybody sees with what the client was told.
func (c *cell) check() {
	c.t.Helper()
	ctx := within(c.t, 2*patience)
	probe := client(c.t, c.d.Addr)
	defer probe.Close()
	listed, err := listOffsets(ctx, probe, c.topic)
	if err != nil {
		c.t.Fatalf("%s: %v", c.name, err)
	}
	for p, o := range listed[c.topic] {
		if o.stable != o.end {
			c.t.Errorf("%s: partition %d has last stable offset %d and high watermark %d", c.name, p, o.stable, o.end)
		}
	}
	c.checkOffset()
	found := readAll(c.t, ctx, c.d.Addr, kgo.ReadCommitted(), []string{c.topic})
	if diff := cmp.Diff(c.want, found.inOrder()); diff != "" {
		c.t.Errorf("%s: read_committed (-want +got):\n%s", c.name, diff)
	}
	conn := dial(c.t, c.d.Addr)
	defer conn.conn.Close()
	list := kmsg.NewPtrListTransactionsRequest()
	list.StateFilters = []string{"Ongoing", "PrepareCommit", "PrepareAbort"}
	if open := conn.ask(list).(*kmsg.ListTransactionsResponse).TransactionStates; len(open) > 0 {
		c.t.Errorf("%s: open transactions: %+v", c.name, open)
	}
	describe := kmsg.NewPtrDescribeProducersRequest()
	topic := kmsg.NewDescribeProducersRequestTopic()
	topic.Topic, topic.Partitions = c.topic, []int32{0, 1}
	describe.Topics = append(describe.Topics, topic)
	for _, p := range conn.ask(describe).(*kmsg.DescribeProducersResponse).Topics[0].Partitions {
		for _, active := range p.ActiveProducers {
			if active.CurrentTxnStartOffset >= 0 {
				c.t.Errorf("%s: partition %d holds an open transaction: %+v", c.name, p.Partition, active)
			}
		}
	}
}

// checkOffset compares the group's offset.
func (c *cell) checkOffset() {
	c.t.Helper()
	if got, code := committedOffset(c.t, c.d.server, c.group, c.topic, 0, true); got != c.offset || code != 0 {
		c.t.Errorf("%s: the group's offset is %d, %v; want %d", c.name, got, kerr.ErrorForCode(code), c.offset)
	}
}

// inOrder is what lies in the two partitions of the only topic.
func (c content) inOrder() (values [2][]string) {
	var at [2][]position
	for p := range c {
		at[p.partition] = append(at[p.partition], p)
	}
	for i := range at {
		slices.SortFunc(at[i], func(a, b position) int { return int(a.offset - b.offset) })
		for _, p := range at[i] {
			values[i] = append(values[i], c[p])
		}
	}
	return values
}
