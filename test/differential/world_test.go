//go:build peers

package differential

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/strandline-io/strandline/broker/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// producer is what a client knows of one producer.
type producer struct {
	id     *string // transactional id; nil is an idempotent producer
	v2     bool    // speaks transaction.version 2 as a rule
	pid    int64
	epoch  int16
	next   map[place]int32 // sequences
	open   map[place]bool  // where its transaction is known to be
	sent   []sent
	client int
}

type sent struct {
	at place
	b  batch
}

// member is a member of a classic group.
type member struct {
	client int
	id     string
	static *string
}

type group struct {
	name       string
	members    []member
	generation int32
	leader     string
	exists     bool // something was committed
}

// world is what the generator knows while an episode runs.
type world struct {
	*rand.Rand
	prefix    string
	topics    map[string][16]byte
	names     []string // of topics, in order of creation
	parts     map[string]int32
	producers []*producer
	groups    []*group
	consumers [2]consumer
	uniform   bool          // is the assignor of the consumers
	sessions  [2]session    // of fetches
	queue     []func() step // what must follow at once
	clients   int
	starts    int32 // of Strandline
	stamp     int64
}

// firstStamp is the timestamp of the first record: too old for a time that a broker took from its clock, too young for
// Apache Kafka to begin a new segment, where a fetch would end, or to forget the producer when it starts.
var firstStamp = time.Now().Add(-12 * time.Hour).UnixMilli()

func newWorld(prefix string, r *rand.Rand) *world {
	w := &world{Rand: r, prefix: prefix, topics: map[string][16]byte{}, parts: map[string]int32{}, clients: 10, stamp: firstStamp}
	for i := range 4 {
		id := fmt.Sprintf("%stx%d", prefix, i)
		w.producers = append(w.producers, &producer{id: &id, v2: i%2 == 0, pid: -1, epoch: -1, client: i, next: map[place]int32{}, open: map[place]bool{}})
	}
	for i := range 2 {
		w.producers = append(w.producers, &producer{pid: -1, epoch: -1, client: 4 + i, next: map[place]int32{}, open: map[place]bool{}})
	}
	// Offsets of a transaction count there by partition of an internal topic, here by group: no two groups share one.
	used := map[int32]bool{offsetsPartition(""): true}
	for i := 0; len(w.groups) < 3; i++ {
		name := fmt.Sprintf("%sg%d", prefix, i)
		if p := offsetsPartition(name); !used[p] {
			used[p] = true
			w.groups = append(w.groups, &group{name: name, generation: -1})
		}
	}
	return w
}

// offsetsPartitions is offsets.topic.num.partitions.
const offsetsPartitions = 4

// offsetsPartition is where Apache Kafka keeps a group's offsets.
func offsetsPartition(group string) int32 {
	var h int32
	for _, c := range []byte(group) {
		h = 31*h + int32(c)
	}
	return (h & 0x7fffffff) % offsetsPartitions
}

func (w *world) chance(percent int) bool { return w.IntN(100) < percent }

func pick[T any](w *world, list ...T) T { return list[w.IntN(len(list))] }

// begin makes the topics that most steps work on.
func (w *world) begin(d *driver) error {
	for kind, key := range []string{w.groups[0].name, *w.producers[0].id} {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version = 3
		req.CoordinatorKey, req.CoordinatorType = key, int8(kind)
		if err := d.do(one(0, req, nil)); err != nil {
			return err
		}
	}
	if err := w.beginConsumers(d); err != nil {
		return err
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	req.TimeoutMillis = 10000
	for i := range 3 {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = fmt.Sprintf("%st%d", w.prefix, i), int32(i+1), 1
		if i == 2 {
			t.Configs = append(t.Configs, topicConfig("message.timestamp.type", "LogAppendTime"), topicConfig("max.message.bytes", "2000"))
		}
		req.Topics = append(req.Topics, t)
	}
	return d.do(step{exchanges: []exchange{{0, req}}, after: func(rs []kmsg.Response) { w.created(rs[0]) }})
}

func topicConfig(name, value string) kmsg.CreateTopicsRequestTopicConfig {
	c := kmsg.NewCreateTopicsRequestTopicConfig()
	c.Name, c.Value = name, &value
	return c
}

func (w *world) created(r kmsg.Response) {
	if r == nil {
		return
	}
	for _, t := range r.(*kmsg.CreateTopicsResponse).Topics {
		if t.ErrorCode != 0 || r.GetVersion() < 7 {
			continue
		}
		w.topics[t.Topic] = t.TopicID
		w.parts[t.Topic] = t.NumPartitions
		if !slices.Contains(w.names, t.Topic) {
			w.names = append(w.names, t.Topic)
		}
	}
}

// autoTopic is made by the versions of Metadata that make what they ask for.
func (w *world) autoTopic() string { return w.prefix + "auto" }

// finish removes the episode's topics and sessions.
func (w *world) finish(d *driver) error {
	for i := range w.sessions {
		if s := &w.sessions[i]; s.id != 0 {
			if err := d.do(w.endSession(s)); err != nil {
				return err
			}
		}
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version = 5
	req.TimeoutMillis = 10000
	req.TopicNames = slices.Concat(w.names, w.consumerTopics(), []string{w.autoTopic()})
	return d.do(step{exchanges: []exchange{{0, req}}})
}

// action is one kind of step and how often it comes.
type action struct {
	weight int
	make   func(w *world) step
}

var actions []action

var weights int

func init() {
	actions = slices.Concat(dataActions, manyActions, txnActions, expiryActions, groupActions, consumerActions, adminActions, rareActions)
	for _, a := range actions {
		weights += a.weight
	}
}

// next makes the next step.
func (w *world) next() step {
	if len(w.queue) > 0 {
		f := w.queue[0]
		w.queue = w.queue[1:]
		return f()
	}
	n := w.IntN(weights)
	for _, a := range actions {
		if n < a.weight {
			return a.make(w)
		}
		n -= a.weight
	}
	panic("BUG: weights")
}

// version picks a version that Apache Kafka serves and kmsg knows, lo to hi of them.
func (w *world) version(req kmsg.Request, lo, hi int16) {
	api, ok := wire.Lookup(req.Key())
	if !ok {
		panic("BUG: no such API")
	}
	lo, hi = max(lo, api.Min), min(hi, api.Max, req.MaxVersion())
	req.SetVersion(lo + int16(w.IntN(int(hi-lo)+1)))
}

func (w *world) anyVersion(req kmsg.Request) { w.version(req, 0, 99) }

// one is a step of one request.
func one(client int, req kmsg.Request, after func(kmsg.Response)) step {
	return step{exchanges: []exchange{{client, req}}, after: func(rs []kmsg.Response) {
		if rs[0] != nil && after != nil {
			after(rs[0])
		}
	}}
}

// place picks a partition: rarely one that does not exist.
func (w *world) place() place {
	if w.chance(2) {
		return place{w.prefix + "none", 0}
	}
	t := w.names[w.IntN(len(w.names))]
	p := place{t, int32(w.IntN(int(w.parts[t])))}
	if w.chance(2) {
		p.partition = w.parts[t] + 3
	}
	return p
}

func (w *world) producer(transactional bool) *producer {
	for {
		p := w.producers[w.IntN(len(w.producers))]
		if (p.id != nil) == transactional {
			return p
		}
	}
}

// claim is the producer id and epoch that a request names: rarely wrong ones.
func (w *world) claim(p *producer) (int64, int16) {
	pid, epoch := p.pid, p.epoch
	switch w.IntN(50) {
	case 0:
		pid = 987654321
	case 1:
		pid = -1
	case 2:
		epoch++
	case 3, 4:
		epoch = max(epoch-1, 0)
	case 5:
		epoch = -1
	case 6:
		o := w.producers[w.IntN(len(w.producers))]
		pid, epoch = o.pid, o.epoch
	}
	return pid, epoch
}

func (w *world) txnID(p *producer) string {
	if w.chance(2) {
		return w.prefix + "unknown"
	}
	if w.chance(1) {
		return ""
	}
	return *p.id
}
