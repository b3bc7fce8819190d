//go:build peers

package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/test/peers"
)

// reading is what the members of a group have read, by partition.
type reading struct {
	mu          sync.Mutex
	next        map[int32]int64 // where the reading of a partition goes on
	twice       []string        // what was read again although it was committed
	uncommitted map[int32]int64 // from where a partition may be read again: a commit was refused
	by          map[string]int  // member → records
	events      chan string     // "stopped NAME" and "failed NAME WHY"
	refused     []string
}

func newReading() *reading {
	return &reading{next: map[int32]int64{}, uncommitted: map[int32]int64{}, by: map[string]int{}, events: make(chan string, 100)}
}

func (r *reading) read(name string, partition int32, first, last int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.next[partition]
	again, allowed := r.uncommitted[partition]
	switch {
	case first > next:
		r.twice = append(r.twice, fmt.Sprintf("%s skips from %d to %d in partition %d", name, next, first, partition))
	case first < next && (!allowed || first < again):
		r.twice = append(r.twice, fmt.Sprintf("%s reads %d of partition %d again, which was read up to %d", name, first, partition, next))
	}
	delete(r.uncommitted, partition)
	r.next[partition] = max(next, last+1)
	r.by[name] += int(last - first + 1)
}

func (r *reading) notCommitted(partition int32, first int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, ok := r.uncommitted[partition]; !ok || first < before {
		r.uncommitted[partition] = first
	}
}

func (r *reading) records(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[name]
}

// javaMembers runs Members.java.
type javaMembers struct {
	t     *testing.T
	r     *reading
	stdin io.WriteCloser
}

func startJavaMembers(t *testing.T, r *reading, addr, group, topic string) *javaMembers {
	t.Helper()
	cmd := peers.CompileJava(t, "java").Command(t, "Members", addr, group, topic)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var name string
			var partition int32
			var first, last int64
			line := lines.Text()
			verb, rest, _ := strings.Cut(line, " ")
			switch verb {
			case "read":
				fmt.Sscan(rest, &name, &partition, &first, &last)
				r.read(name, partition, first, last)
			case "uncommitted":
				fmt.Sscan(rest, &name, &partition, &first, &last)
				r.notCommitted(partition, first)
			case "refused":
				r.mu.Lock()
				r.refused = append(r.refused, rest)
				r.mu.Unlock()
			default:
				r.events <- line
			}
		}
	}()
	t.Cleanup(func() {
		stdin.Close()
		<-ended
		cmd.Wait()
	})
	return &javaMembers{t, r, stdin}
}

func (j *javaMembers) tell(format string, args ...any) {
	j.t.Helper()
	if _, err := fmt.Fprintf(j.stdin, format+"\n", args...); err != nil {
		j.t.Fatal(err)
	}
}

// stop asks a member to leave and waits until it has.
func (j *javaMembers) stop(name string) {
	j.t.Helper()
	j.tell("stop %s", name)
	select {
	case event := <-j.r.events:
		if event != "stopped "+name {
			j.t.Fatalf("a member says %q", event)
		}
	case <-time.After(patience):
		j.t.Fatalf("%s does not stop", name)
	}
}

// goMember is a member of franz-go's; stop ends it.
func goMember(t *testing.T, r *reading, addr, group, topic, name string, next bool) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	opts := []kgo.Opt{kgo.SeedBrokers(addr), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ClientID(name),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	if next {
		//lint:ignore SA1029 the library looks for this very string
		opts = append(opts, kgo.WithContext(context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)))
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			poll, done := context.WithTimeout(ctx, 100*time.Millisecond)
			fetches := c.PollFetches(poll)
			done()
			var first []*kgo.Record
			fetches.EachPartition(func(p kgo.FetchTopicPartition) {
				if n := len(p.Records); n > 0 {
					first = append(first, p.Records[0])
					r.read(name, p.Partition, p.Records[0].Offset, p.Records[n-1].Offset)
				}
			})
			if len(first) > 0 {
				if err := c.CommitUncommittedOffsets(within(t, patience)); err != nil {
					for _, rec := range first {
						r.notCommitted(rec.Partition, rec.Offset)
					}
				}
			}
			c.AllowRebalance()
		}
	}()
	return func() {
		cancel()
		<-ended
		leave, done := context.WithTimeout(context.Background(), patience)
		defer done()
		if err := c.LeaveGroupContext(leave); err != nil && !errors.Is(err, context.Canceled) {
			t.Logf("%s leaves: %v", name, err)
		}
		c.CloseAllowingRebalance()
	}
}

// migration is a group while its members change their protocol one by one, and records come all the time.
type migration struct {
	t    *testing.T
	s    *server
	r    *reading
	java *javaMembers
	adm  *kadm.Client
}

// reads waits until a member has read something new.
func (m *migration) reads(names ...string) {
	m.t.Helper()
	for _, name := range names {
		before := m.r.records(name)
		m.until(name+" reads", func() bool { return m.r.records(name) > before })
	}
}

func (m *migration) until(what string, done func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(2 * patience); !done(); {
		if time.Now().After(deadline) {
			m.r.mu.Lock()
			defer m.r.mu.Unlock()
			m.t.Fatalf("not within %v: %s; read by %v, refused %v", 2*patience, what, m.r.by, m.r.refused)
		}
		select {
		case event := <-m.r.events:
			m.t.Fatalf("a member says %q", event)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// is waits until the group has this type and as many members.
func (m *migration) is(kind string, members int) {
	m.t.Helper()
	m.until(fmt.Sprintf("the group is %s with %d members", kind, members), func() bool {
		ctx := within(m.t, patience)
		groups, err := m.adm.ListGroups(ctx)
		if err != nil || !strings.EqualFold(groups["g"].GroupType, kind) || groups["g"].State != "Stable" {
			return false
		}
		if kind == "classic" {
			d, err := m.adm.DescribeGroups(ctx, "g")
			return err == nil && len(d["g"].Members) == members
		}
		d, err := m.adm.DescribeConsumerGroups(ctx, "g")
		return err == nil && len(d["g"].Members) == members
	})
}

// TestRollingMigration changes the protocol of a group's members one by one, Java's and franz-go's, from classic to consumer and
// back, while records come and the broker is killed in between. No record is skipped, none that was committed is read
// again, and in the end all is committed.
func TestRollingMigration(t *testing.T) {
	t.Parallel()
	s := start(t)
	ctx := within(t, 5*time.Minute)
	producer := client(t, s.Addr)
	const partitions = 6
	createTopic(t, ctx, s.Addr, "m", partitions)
	m := &migration{t: t, s: s, r: newReading(), adm: kadm.NewClient(client(t, s.Addr))}
	m.java = startJavaMembers(t, m.r, s.Addr, "g", "m")
	stopProducing, produced := make(chan struct{}), make(chan int64)
	go func() {
		var n int64
		for ; ; n++ {
			select {
			case <-stopProducing:
				produced <- n
				return
			case <-time.After(2 * time.Millisecond):
			}
			if err := producer.ProduceSync(ctx, recordOf("m", int32(n%partitions), fmt.Sprint(n))).FirstErr(); err != nil {
				t.Errorf("produce: %v", err)
			}
		}
	}()
	m.java.tell("start c1 classic")
	m.java.tell("start c2 classic static")
	stopOld := goMember(t, m.r, s.Addr, "g", "m", "old", false)
	m.reads("c1", "c2", "old")
	m.is("classic", 3)
	// The first of the other protocol.
	stopNew := goMember(t, m.r, s.Addr, "g", "m", "new", true)
	m.reads("new", "c1", "c2", "old")
	m.is("consumer", 4)
	m.java.stop("c1")
	m.java.tell("start n1 consumer")
	m.reads("n1", "new", "c2", "old")
	s.restart()
	m.reads("n1", "new", "c2", "old")
	m.java.stop("c2")
	m.java.tell("start n2 consumer static")
	stopOld()
	m.reads("n1", "n2", "new")
	m.is("consumer", 3)
	// And back.
	m.java.stop("n1")
	m.java.tell("start c3 classic")
	m.reads("c3", "n2", "new")
	stopNew()
	m.reads("c3", "n2")
	m.java.stop("n2")
	m.java.tell("start c4 classic static")
	m.reads("c3", "c4")
	m.is("classic", 2)
	close(stopProducing)
	total := <-produced
	m.finish(total)
}

// finish waits until all is read and committed, and judges.
func (m *migration) finish(total int64) {
	m.t.Helper()
	m.until("all is committed", func() bool {
		offsets, err := m.adm.FetchOffsets(within(m.t, patience), "g")
		var sum int64
		offsets.Each(func(o kadm.OffsetResponse) { sum += o.At })
		return err == nil && sum == total
	})
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	var read int64
	for _, next := range m.r.next {
		read += next
	}
	if read != total {
		m.t.Errorf("%d records were produced, %d read", total, read)
	}
	for _, wrong := range m.r.twice {
		m.t.Error(wrong)
	}
	m.t.Logf("%d records, read by %v; commits refused: %v", total, m.r.by, m.r.refused)
}
