//go:build peers

package differential

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// exchange is one request of one virtual client.
type exchange struct {
	client int
	req    kmsg.Request
}

// step is what is done before the next answers are compared. Several exchanges are all sent before the first answer is
// read: members of a group that wait for each other.
type step struct {
	until     func(d *driver) error // waits for what must have happened on both before
	exchanges []exchange
	after     func(answers []kmsg.Response) // ours, nil where the connection was closed
}

// driver runs steps on both brokers and compares.
type driver struct {
	ours, kafka *side
	names       names
	prefix      string
	script      []string
	retries     int
	changes     int           // of settings
	patience    time.Duration // with Apache Kafka's parts that do not agree
	intended    map[string]int
	sent        map[request]int
}

func (d *driver) note(format string, args ...any) {
	d.script = append(d.script, fmt.Sprintf(format, args...))
}

// Bounds of how long Apache Kafka's parts may take to agree: in a run, where each difference takes that long to be one, and
// after a start.
const (
	settleWithin = 20 * time.Second
	loadWithin   = time.Minute
)

// do runs one step. The error says how the answers differ.
func (d *driver) do(s step) error {
	if s.until != nil {
		if err := s.until(d); err != nil {
			return err
		}
	}
	var answers []kmsg.Response
	if len(s.exchanges) == 1 {
		a, err := d.single(s.exchanges[0])
		if err != nil {
			return err
		}
		answers = append(answers, a)
	} else {
		var err error
		if answers, err = d.together(s.exchanges); err != nil {
			return err
		}
	}
	for i, e := range s.exchanges {
		d.sent[request{e.req.Key(), e.req.GetVersion()}]++
		if answers[i] != nil {
			if err := d.settle(e.req, answers[i]); err != nil {
				return err
			}
		}
	}
	if s.after != nil {
		s.after(answers)
	}
	return nil
}

// single asks both brokers the same and compares; it asks Apache Kafka again while that may help.
func (d *driver) single(e exchange) (kmsg.Response, error) {
	d.note("%d client %d: %s", len(d.script)+1, e.client, describe(e.req))
	a, errA := d.ours.call(e.client, e.req)
	if errA != nil && !errors.Is(errA, errClosed) {
		return nil, errA
	}
	deadline, pause := time.Now().Add(d.patience), time.Millisecond
	for {
		b, errB := d.kafka.call(e.client, d.names.translate(e.req))
		if errB != nil && !errors.Is(errB, errClosed) {
			return nil, errB
		}
		diffs := d.compare(e.req, a, errA, b, errB)
		if len(diffs) == 0 {
			d.note("    %s", describeAnswer(a))
			return a, nil
		}
		if a == nil || b == nil || !again(e.req, a, b) || time.Now().After(deadline) {
			d.note("    Strandline:   %s", describeAnswer(a))
			d.note("    Apache Kafka: %s", describeAnswer(b))
			return nil, fmt.Errorf("%s: %s", keyOf(e.req), strings.Join(diffs, "\n\t"))
		}
		d.retries++
		wait(pause)
		pause = min(2*pause, 100*time.Millisecond)
	}
}

func describeAnswer(r kmsg.Response) string {
	if r == nil {
		return "closed"
	}
	return describe(r)
}

func wait(d time.Duration) { <-time.After(d) }

// together sends all before it reads the first answer.
func (d *driver) together(all []exchange) ([]kmsg.Response, error) {
	both := [2][]kmsg.Response{}
	for i, s := range []*side{d.ours, d.kafka} {
		ids := make([]int32, len(all))
		for j, e := range all {
			req := e.req
			if s == d.kafka {
				req = d.names.translate(req)
			} else {
				d.note("%d client %d, together: %s", len(d.script)+1, e.client, describe(req))
			}
			var err error
			if ids[j], err = s.send(e.client, req); err != nil {
				return nil, err
			}
			if join, ok := e.req.(*kmsg.JoinGroupRequest); ok && j == 0 {
				if err := s.rebalancing(join.Group); err != nil {
					return nil, err
				}
			}
		}
		for j, e := range all {
			r, err := s.receive(e.client, ids[j], e.req)
			if err != nil {
				return nil, err
			}
			both[i] = append(both[i], r)
		}
	}
	for j, e := range all {
		if diffs := d.compare(e.req, both[0][j], nil, both[1][j], nil); len(diffs) > 0 {
			d.note("    Strandline:   %s", describe(both[0][j]))
			d.note("    Apache Kafka: %s", describe(both[1][j]))
			return nil, fmt.Errorf("%s: %s", keyOf(e.req), strings.Join(diffs, "\n\t"))
		}
		d.note("    %s", describe(both[0][j]))
	}
	return both[0], nil
}

// rebalancing waits until a member that was sent first makes the others of its group wait.
func (s *side) rebalancing(group string) error {
	deadline := time.Now().Add(settleWithin)
	for {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{group}
		resp, err := s.call(0, req)
		if err != nil {
			return err
		}
		if state := resp.(*kmsg.DescribeGroupsResponse).Groups[0].State; state == "PreparingRebalance" {
			return nil
		} else if time.Now().After(deadline) {
			return fmt.Errorf("%s: group %s stays %s", s.name, group, state)
		}
		wait(time.Millisecond)
	}
}

// compare returns the differences that no rule allows.
func (d *driver) compare(req kmsg.Request, a kmsg.Response, errA error, b kmsg.Response, errB error) []string {
	if errA != nil || errB != nil {
		if errA != nil && errB != nil {
			return nil
		}
		return []string{fmt.Sprintf("answer: %s, Apache Kafka %s", describeAnswer(a), describeAnswer(b))}
	}
	for _, r := range []kmsg.Response{a, b} {
		if f, ok := r.(*kmsg.FetchResponse); ok {
			gather(f)
		}
	}
	for _, r := range rules {
		if r.key == req.Key() && r.met(&d.names, req, a, b) {
			d.intended[r.name]++
		}
	}
	return d.names.compare(d.prefix, req, a, b)
}

// gather puts the partitions of a topic together that a fetch session gives apart, because it turns its partitions round.
func gather(r *kmsg.FetchResponse) {
	type key struct {
		name string
		id   [16]byte
	}
	at := map[key]int{}
	var out []kmsg.FetchResponseTopic
	for _, t := range r.Topics {
		k := key{t.Topic, t.TopicID}
		if i, ok := at[k]; ok {
			out[i].Partitions = append(out[i].Partitions, t.Partitions...)
			continue
		}
		at[k] = len(out)
		out = append(out, t)
	}
	r.Topics = out
}

// reading requests change nothing: they may be asked again until the answer rests.
var reading = map[int16]bool{1: true, 2: true, 3: true, 9: true, 10: true, 15: true, 16: true, 23: true, 32: true, 61: true, 65: true, 66: true, 69: true, 75: true}

// passing errors say that Apache Kafka's parts do not agree yet.
var passing = []*kerr.Error{
	kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable,
	kerr.NotLeaderForPartition, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.NotEnoughReplicas,
	kerr.UnstableOffsetCommit, kerr.RequestTimedOut,
}

// again reports whether Apache Kafka should be asked again.
func again(req kmsg.Request, a, b kmsg.Response) bool {
	if f, ok := req.(*kmsg.FetchRequest); ok && (f.SessionID != 0 || f.SessionEpoch == 0) {
		return false // every request of a session counts
	}
	if reading[req.Key()] {
		return true
	}
	mine, their := map[int16]bool{}, map[int16]bool{}
	codes(reflect.ValueOf(a), mine)
	codes(reflect.ValueOf(b), their)
	for _, e := range passing {
		if their[e.Code] && !mine[e.Code] {
			return true
		}
	}
	return false
}

// settle waits until Apache Kafka has carried out what it has answered.
func (d *driver) settle(req kmsg.Request, a kmsg.Response) error {
	found := map[int16]bool{}
	codes(reflect.ValueOf(a), found)
	switch req := req.(type) {
	case *kmsg.EndTxnRequest:
		if found[0] {
			return d.rest(req.TransactionalID)
		}
	case *kmsg.InitProducerIDRequest:
		if found[0] && req.TransactionalID != nil {
			return d.rest(*req.TransactionalID)
		}
	case *kmsg.CreateTopicsRequest:
		for _, t := range req.Topics {
			if err := d.sameTopic(t.Topic); err != nil {
				return err
			}
		}
	case *kmsg.CreatePartitionsRequest:
		for _, t := range req.Topics {
			if err := d.sameTopic(t.Topic); err != nil {
				return err
			}
		}
	case *kmsg.DeleteTopicsRequest:
		for _, name := range req.TopicNames {
			if err := d.sameTopic(name); err != nil {
				return err
			}
		}
		for _, t := range req.Topics {
			if t.Topic != nil {
				if err := d.sameTopic(*t.Topic); err != nil {
					return err
				}
			}
		}
	case *kmsg.IncrementalAlterConfigsRequest, *kmsg.AlterConfigsRequest:
		return d.configured()
	}
	return nil
}

// configured waits until Apache Kafka acts by the settings that it has taken. It shows a change before everything knows
// of it, but not before everything knows of the change before: so another one is made.
func (d *driver) configured() error {
	d.changes++
	value := strconv.Itoa(5000 + d.changes)
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, "of-no-interest-"+d.prefix
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = "consumer.heartbeat.interval.ms", &value
	r.Configs = append(r.Configs, c)
	alter.Resources = append(alter.Resources, r)
	ask := kmsg.NewPtrDescribeConfigsRequest()
	ask.Version = 4
	q := kmsg.NewDescribeConfigsRequestResource()
	q.ResourceType, q.ResourceName, q.ConfigNames = r.ResourceType, r.ResourceName, []string{c.Name}
	ask.Resources = append(ask.Resources, q)
	deadline := time.Now().Add(loadWithin)
	for altered := false; ; {
		if !altered {
			resp, err := d.kafka.call(0, alter)
			if err != nil {
				return err
			}
			altered = resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode == 0 // else a controller that is late
		}
		resp, err := d.kafka.call(0, ask)
		if err != nil {
			return err
		}
		for _, r := range resp.(*kmsg.DescribeConfigsResponse).Resources {
			if len(r.Configs) == 1 && r.Configs[0].Value != nil && *r.Configs[0].Value == value {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: a setting does not become %s", d.kafka.name, value)
		}
		wait(time.Millisecond)
	}
}

// rest waits until a transaction has no step of its end before it on Apache Kafka.
func (d *driver) rest(id string) error {
	return d.kafka.leaves(id, func(state string) bool { return strings.HasPrefix(state, "Prepare") })
}

// timedOut waits until a transaction is over on both sides.
func (d *driver) timedOut(id string) error {
	d.note("    until both have aborted the transaction of %s", id)
	for _, s := range []*side{d.ours, d.kafka} {
		if err := s.leaves(id, func(state string) bool { return state == "Ongoing" || strings.HasPrefix(state, "Prepare") }); err != nil {
			return err
		}
	}
	return nil
}

// leaves waits until a transaction is in another state.
func (s *side) leaves(id string, in func(state string) bool) error {
	deadline := time.Now().Add(settleWithin)
	for {
		req := kmsg.NewPtrDescribeTransactionsRequest()
		req.TransactionalIDs = []string{id}
		resp, err := s.call(0, req)
		if err != nil {
			return err
		}
		states := resp.(*kmsg.DescribeTransactionsResponse).TransactionStates
		if len(states) != 1 || !in(states[0].State) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: the transaction of %s stays %s", s.name, id, states[0].State)
		}
		wait(time.Millisecond)
	}
}

// sameTopic waits until Apache Kafka sees of a topic what we see.
func (d *driver) sameTopic(name string) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	req.Topics = append(req.Topics, topic)
	d.note("    until both see the same of %s", name)
	r, err := d.single(exchange{0, req})
	if err != nil || r == nil {
		return err
	}
	// Apache Kafka tells of a partition before it leads it.
	ask := kmsg.NewPtrListOffsetsRequest()
	ask.Version, ask.ReplicaID = 5, -1
	for _, t := range r.(*kmsg.MetadataResponse).Topics {
		out := kmsg.NewListOffsetsRequestTopic()
		out.Topic = name
		for _, p := range t.Partitions {
			q := kmsg.NewListOffsetsRequestTopicPartition()
			q.Partition, q.CurrentLeaderEpoch, q.Timestamp = p.Partition, -1, -1
			out.Partitions = append(out.Partitions, q)
		}
		if len(out.Partitions) > 0 {
			ask.Topics = append(ask.Topics, out)
		}
	}
	if len(ask.Topics) > 0 {
		_, err = d.single(exchange{0, ask})
	}
	return err
}

func (d *driver) tally(intended map[string]int, sent map[request]int) {
	for name, n := range d.intended {
		intended[name] += n
	}
	for r, n := range d.sent {
		sent[r] += n
	}
}
