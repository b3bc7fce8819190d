package broker_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
)

// sessionClient reads partitions of topics by one fetch session.
type sessionClient struct {
	c       *rawClient
	version int16
	ids     map[string][16]byte // with version 13 and later
	id      int32
	epoch   int32
}

// position is a partition and where to read it.
type position struct {
	topic     string
	partition int32
	offset    int64
}

func (s *sessionClient) request(wanted []position, forgotten ...position) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxBytes, req.MinBytes, req.SessionID, req.SessionEpoch = s.version, 1<<20, 1, s.id, s.epoch
	for _, w := range wanted {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = w.topic, s.ids[w.topic]
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = w.partition, w.offset, 1<<20
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	for _, f := range forgotten {
		t := kmsg.NewFetchRequestForgottenTopic()
		t.Topic, t.TopicID, t.Partitions = f.topic, s.ids[f.topic], []int32{f.partition}
		req.ForgottenTopics = append(req.ForgottenTopics, t)
	}
	return req
}

// told are the partitions of a response, as "topic/partition=code:records".
func (s *sessionClient) told(resp *kmsg.FetchResponse) (told []string) {
	s.c.t.Helper()
	for _, t := range resp.Topics {
		name := t.Topic
		for known, id := range s.ids {
			if s.version >= 13 && id == t.TopicID {
				name = known
			}
		}
		for _, p := range t.Partitions {
			told = append(told, fmt.Sprintf("%s/%d=%d:%d", name, p.Partition, p.ErrorCode, len(valuesOf(s.c.t, p.RecordBatches))))
		}
	}
	return told
}

// want asks and compares what is told; the session then goes on.
func (s *sessionClient) want(what string, req *kmsg.FetchRequest, want ...string) {
	s.c.t.Helper()
	resp := ask[*kmsg.FetchResponse](s.c, req)
	if resp.ErrorCode != 0 {
		s.c.t.Fatalf("%s: code %d", what, resp.ErrorCode)
	}
	if diff := cmp.Diff(want, s.told(resp)); diff != "" {
		s.c.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
	if s.id == 0 {
		s.id = resp.SessionID
	}
	if resp.SessionID == 0 || resp.SessionID != s.id {
		s.c.t.Errorf("%s: session %d, want %d", what, resp.SessionID, s.id)
	}
	s.epoch++
}

// refused asks and compares the code; the session stays as it is.
func (s *sessionClient) refused(what string, want int16, req *kmsg.FetchRequest) {
	s.c.t.Helper()
	if resp := ask[*kmsg.FetchResponse](s.c, req); resp.ErrorCode != want || resp.SessionID != 0 || len(resp.Topics) > 0 {
		s.c.t.Errorf("%s: code %d, session %d, %d topics, want %d", what, resp.ErrorCode, resp.SessionID, len(resp.Topics), want)
	}
}

// TestFetchSession goes through a session's life, by name and by topic id.
func TestFetchSession(t *testing.T) {
	for _, version := range []int16{7, 12, 13, 18} {
		c := dial(t, brokertest.Start(t))
		s := &sessionClient{c: c, version: version, ids: map[string][16]byte{"a": createTopic(c, "a", 2), "b": createTopic(c, "b", 1), "gone": {7}}}
		produce(c, "a", 0, batchOf(1, "x"))
		unknown := "gone/0=3:0"
		if version >= 13 {
			unknown = "gone/0=100:0"
		}
		s.want("all at first", s.request([]position{{"a", 0, 0}, {"a", 1, 0}, {"b", 0, 0}}), "a/0=0:1", "a/1=0:0", "b/0=0:0")
		s.want("nothing has changed but a position", s.request([]position{{"a", 0, 1}}))
		produce(c, "b", 0, batchOf(1, "y"))
		s.want("what has changed", s.request(nil), "b/0=0:1")
		s.want("data is sent until the position moves", s.request(nil), "b/0=0:1")
		s.want("a partition more", s.request([]position{{"b", 0, 1}, {"gone", 0, 0}}), unknown)
		s.want("errors are told each time", s.request(nil), unknown)
		s.want("what is out of range", s.request([]position{{"a", 1, 5}}), "a/1=1:0", unknown)
		s.want("an error that is over", s.request([]position{{"a", 1, 0}}, position{"gone", 0, 0}), "a/1=0:0")
		produce(c, "a", 1, batchOf(1, "z"))
		s.want("what is forgotten", s.request(nil, position{"a", 1, 0}))
		s.want("and comes back", s.request([]position{{"a", 1, 0}}), "a/1=0:1")

		s.epoch--
		s.refused("an epoch again", 71, s.request(nil))
		s.epoch += 2
		s.refused("an epoch left out", 71, s.request(nil))
		s.epoch--
		other := *s
		if other.version = 12; version == 12 || version == 7 {
			other.version = 13
		}
		other.refused("other names of topics", 106, other.request(nil))
		s.want("what was refused changes nothing", s.request([]position{{"a", 1, 1}}))

		// Without partitions there is no session.
		empty := ask[*kmsg.FetchResponse](c, s.request(nil, position{"a", 0, 0}, position{"a", 1, 0}, position{"b", 0, 0}))
		if empty.ErrorCode != 0 || empty.SessionID != 0 {
			t.Errorf("all forgotten: code %d, session %d", empty.ErrorCode, empty.SessionID)
		}
		s.epoch++
		s.refused("a session that has ended", 70, s.request(nil))
	}
}

// TestFetchSessionEnds: a request that names a session and all its partitions ends the session, and may begin another.
func TestFetchSessionEnds(t *testing.T) {
	b := brokertest.Start(t)
	c := dial(t, b)
	createTopic(c, "a", 1)
	s := &sessionClient{c: c, version: 12}
	all := []position{{"a", 0, 0}}
	s.want("begin", s.request(all), "a/0=0:0")
	first := *s
	s.epoch = -1
	if resp := ask[*kmsg.FetchResponse](c, s.request(all)); resp.SessionID != 0 || len(s.told(resp)) != 1 {
		t.Errorf("the end: session %d, %v", resp.SessionID, s.told(resp))
	}
	first.refused("after the end", 70, first.request(nil))

	*s = sessionClient{c: c, version: 12}
	s.want("begin again", s.request(all), "a/0=0:0")
	first = *s
	s.epoch = 0
	second := ask[*kmsg.FetchResponse](c, s.request(all))
	if second.SessionID == 0 || second.SessionID == first.id {
		t.Errorf("the new session is %d, the old one was %d", second.SessionID, first.id)
	}
	first.refused("the replaced session", 70, first.request(nil))
	// A client comes back on another connection.
	s.id, s.epoch, s.c = second.SessionID, 1, dial(t, b)
	s.want("on another connection", s.request(nil))
}

// TestFetchSessionOfATopicMadeAgain: what a client knows of a topic that was deleted says nothing of the new one.
func TestFetchSessionOfATopicMadeAgain(t *testing.T) {
	for _, version := range []int16{12, 13} {
		c := dial(t, brokertest.Start(t))
		s := &sessionClient{c: c, version: version, ids: map[string][16]byte{"a": createTopic(c, "a", 1)}}
		produce(c, "a", 0, batchOf(1, "x"))
		s.want("begin", s.request([]position{{"a", 0, 1}}), "a/0=0:0")
		del := kmsg.NewPtrDeleteTopicsRequest()
		del.Version, del.TopicNames = 5, []string{"a"}
		ask[*kmsg.DeleteTopicsResponse](c, del)
		old := s.ids["a"]
		made := createTopic(c, "a", 1)
		produce(c, "a", 0, batchOf(1, "y"))
		if version < 13 {
			s.want("by name it is the new one", s.request(nil), "a/0=0:0")
			continue
		}
		s.want("the id is gone", s.request(nil), "a/0=3:0")
		forget := s.request([]position{{"a", 0, 0}}, position{"a", 0, 0})
		forget.Topics[0].TopicID, forget.ForgottenTopics[0].TopicID = made, old
		s.ids["a"] = made
		s.want("the new id", forget, "a/0=0:1")
	}
}

// TestFetchSessionWaits: what a session leaves out counts for nothing, and what it tells of wakes it.
func TestFetchSessionWaits(t *testing.T) {
	b := brokertest.Start(t)
	c, other := dial(t, b), dial(t, b)
	ids := map[string][16]byte{"a": createTopic(c, "a", 3)}
	s := &sessionClient{c: c, version: 13, ids: ids}
	committed := func(req *kmsg.FetchRequest) *kmsg.FetchRequest {
		req.IsolationLevel = 1
		return req
	}
	s.want("begin", committed(s.request([]position{{"a", 0, 0}, {"a", 1, 0}, {"a", 2, 0}})), "a/0=0:0", "a/1=0:0", "a/2=0:0")
	long := committed(s.request(nil))
	long.MaxWaitMillis = int32(2 * patience.Milliseconds())
	id := c.send(long)
	s.epoch++
	p := initProducer(other, "p")
	p.write("a", ids["a"], 1, "aborted")
	p.end(false)
	produce(other, "a", 1, batchOf(1, "x"))
	resp := long.ResponseKind().(*kmsg.FetchResponse)
	c.receive(id, resp)
	// The end of the transaction, or what follows it, ends the wait.
	if told := s.told(resp); len(told) != 1 || resp.SessionID != s.id {
		t.Fatalf("session %d tells %v", resp.SessionID, told)
	}
	if list := fetched(resp).AbortedTransactions; len(list) != 1 {
		t.Errorf("the aborted transactions are %v, want one", list)
	}
	s.want("the rest", committed(s.request([]position{{"a", 1, 2}})), "a/1=0:1")
	s.want("nothing more", committed(s.request([]position{{"a", 1, 3}})))

	// Data of an open transaction is no news worth waking for; at the end of the wait its high watermark is told.
	p.write("a", ids["a"], 0, "open")
	short := committed(s.request(nil))
	short.MaxWaitMillis = 30
	start := time.Now()
	s.want("an open transaction", short, "a/0=0:0")
	if time.Since(start) < 30*time.Millisecond {
		t.Error("an open transaction ends the wait")
	}
	p.end(true)
	s.want("its end", committed(s.request(nil)), "a/0=0:1")
}

// TestFetchSessionIsInUse: while a request of a session waits, another one on another connection is refused.
func TestFetchSessionIsInUse(t *testing.T) {
	b := brokertest.Start(t)
	c, other := dial(t, b), dial(t, b)
	createTopic(c, "a", 1)
	s := &sessionClient{c: c, version: 12}
	s.want("begin", s.request([]position{{"a", 0, 0}}), "a/0=0:0")
	long := s.request(nil)
	long.MaxWaitMillis = int32(2 * patience.Milliseconds())
	id := c.send(long)
	intruder := *s
	intruder.c = other
	eventually(t, "the session is in use", func() bool {
		intruder.version = 13 // until its epoch has passed, the other names of topics are what is refused
		return ask[*kmsg.FetchResponse](other, intruder.request(nil)).ErrorCode == 71
	})
	intruder.version, intruder.epoch = 12, 2
	intruder.refused("the next epoch, too early", 71, intruder.request(nil))
	// Ended by somebody else while it waits, it still gets its answer.
	intruder.epoch = -1
	ask[*kmsg.FetchResponse](other, intruder.request(nil))
	produce(other, "a", 0, batchOf(1, "x"))
	resp := long.ResponseKind().(*kmsg.FetchResponse)
	c.receive(id, resp)
	if told := s.told(resp); len(told) != 1 || told[0] != "a/0=0:1" {
		t.Errorf("told %v", told)
	}
	s.epoch = 2
	s.refused("it has ended", 70, s.request(nil))
}

// TestFetchSessionsTakeTurns: a partition that fills the answers does not keep the others from theirs.
func TestFetchSessionsTakeTurns(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	createTopic(c, "a", 2)
	for range 3 {
		produce(c, "a", 0, batchOf(1, "x"))
		produce(c, "a", 1, batchOf(1, "y"))
	}
	s := &sessionClient{c: c, version: 12}
	one := func(req *kmsg.FetchRequest) *kmsg.FetchRequest {
		req.MaxBytes = 1
		return req
	}
	s.want("begin", one(s.request([]position{{"a", 0, 0}, {"a", 1, 0}})), "a/0=0:1", "a/1=0:0")
	s.want("as asked", one(s.request([]position{{"a", 0, 1}})), "a/0=0:1")
	s.want("the other's turn", one(s.request([]position{{"a", 0, 2}})), "a/1=0:1")
	s.want("and back", one(s.request([]position{{"a", 1, 1}})), "a/0=0:1")
}

// sessionLimits opens sessions of so many partitions on a broker whose clock the test moves.
type sessionLimits struct {
	c      *rawClient
	passed atomic.Int64
}

func limitSessions(t *testing.T, change func(*broker.Config)) *sessionLimits {
	l := &sessionLimits{}
	start := time.Now()
	l.c = dial(t, brokertest.Start(t, brokertest.Configure(func(c *broker.Config) {
		c.Now = func() time.Time { return start.Add(time.Duration(l.passed.Load())) }
		change(c)
	})))
	createTopic(l.c, "a", 100)
	return l
}

func (l *sessionLimits) wait(d time.Duration) { l.passed.Add(int64(d)) }

func (l *sessionLimits) open(n int) *sessionClient {
	l.c.t.Helper()
	s := &sessionClient{c: l.c, version: 12}
	var wanted []position
	for i := range n {
		wanted = append(wanted, position{"a", int32(i), 0})
	}
	s.id = ask[*kmsg.FetchResponse](l.c, s.request(wanted)).SessionID
	s.epoch = 1
	return s
}

// TestFetchSessionsAreBounded: a new session replaces one that is not used, or that is old and smaller, as in Apache
// Kafka; else there is none.
func TestFetchSessionsAreBounded(t *testing.T) {
	l := limitSessions(t, func(c *broker.Config) { c.MaxFetchSessions = 2 })
	small, large := l.open(1), l.open(10)
	if small.id == 0 || large.id == 0 || small.id == large.id {
		t.Fatalf("sessions %d and %d", small.id, large.id)
	}
	if s := l.open(20); s.id != 0 {
		t.Error("a session in use for a short time is replaced")
	}
	l.wait(2 * time.Minute)
	small.want("used", small.request(nil))
	large.want("used", large.request(nil))
	l.wait(time.Second)
	if s := l.open(1); s.id != 0 {
		t.Error("one as large as the smallest replaces it")
	}
	middle := l.open(5)
	if middle.id == 0 {
		t.Fatal("a larger one does not replace the smallest")
	}
	small.refused("the smallest", 70, small.request(nil))
	middle.want("the one instead of it", middle.request(nil))
	l.wait(2*time.Minute + time.Second)
	middle.want("still used", middle.request(nil))
	if s := l.open(1); s.id == 0 {
		t.Error("one that nobody uses is not replaced")
	}
	large.refused("the unused one", 70, large.request(nil))

	l = limitSessions(t, func(c *broker.Config) { c.MaxFetchSessions = -1 })
	if s := l.open(1); s.id != 0 {
		t.Error("there is a session although none may be kept")
	}
}

// TestFetchSessionMemoryIsBounded: no session that is too large, and the end of one that becomes it.
func TestFetchSessionMemoryIsBounded(t *testing.T) {
	l := limitSessions(t, func(c *broker.Config) { c.FetchSessionMemoryBytes = 20_000 })
	if s := l.open(100); s.id != 0 {
		t.Error("a session is larger than all may be")
	}
	first, second := l.open(10), l.open(30)
	if first.id == 0 || second.id == 0 {
		t.Fatal("there is no room for two")
	}
	var more []position
	for i := range 100 {
		more = append(more, position{"a", int32(i), 0})
	}
	first.refused("it grows too large", 70, first.request(more))
	first.refused("so it has ended", 70, first.request(nil))
	second.want("the other goes on", second.request(nil))
	if s := l.open(10); s.id == 0 {
		t.Error("its memory is not given back")
	}
}

// TestIdleFetchSessionIsSmall: what a thousand quiet partitions cost on the wire.
func TestIdleFetchSessionIsSmall(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	id := createTopic(c, "a", 1000)
	s := &sessionClient{c: c, version: 13, ids: map[string][16]byte{"a": id}}
	req := s.request(nil)
	rt := kmsg.NewFetchRequestTopic()
	rt.TopicID = id
	for i := range int32(1000) {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.PartitionMaxBytes = i, 1<<20
		rt.Partitions = append(rt.Partitions, p)
	}
	req.Topics = append(req.Topics, rt)
	sizes := func(req *kmsg.FetchRequest) (asked, answered int, resp *kmsg.FetchResponse) {
		c.send(req)
		frame := c.frame()
		resp = req.ResponseKind().(*kmsg.FetchResponse)
		if err := resp.ReadFrom(frame[5:]); err != nil {
			t.Fatal(err)
		}
		return len(req.AppendTo(nil)), len(frame), resp
	}
	asked, answered, resp := sizes(req)
	s.id, s.epoch = resp.SessionID, 1
	idleAsked, idleAnswered, resp := sizes(s.request(nil))
	t.Logf("all: %d bytes asked, %d answered; idle: %d and %d", asked, answered, idleAsked, idleAnswered)
	if resp.ErrorCode != 0 || idleAsked > 50 || idleAnswered > 30 {
		t.Errorf("code %d; idle: %d bytes asked, %d answered", resp.ErrorCode, idleAsked, idleAnswered)
	}
}
