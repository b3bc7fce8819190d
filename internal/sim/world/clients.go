package world

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// inputPartitions is the partition count of each topic.
const inputPartitions = 2

var topics = []string{"in", "out", "plain"}

// startClients lets one client make the topics and then starts the others.
func (w *World) startClients() {
	w.startClient(setupClient, true, func(c *client) {
		c.createTopics()
		for i := range 2 {
			topic, batches := []string{"in", "plain"}[i], 10+w.IntN(30)
			w.startProducer(fmt.Sprintf("idempotent-%d", i), func(c *client) { c.runIdempotent(topic, batches) })
			w.startTransactor(fmt.Sprintf("tx-%d", i), 1, 4+w.IntN(12))
		}
		requests := 5 + w.IntN(20)
		w.startProducer("plain", func(c *client) { c.runPlain("plain", requests) })
		w.startReaders()
		if w.mode.lossy {
			w.startClient("initializer", true, (*client).runInitializer)
			return
		}
		w.startProducer("patient", (*client).runPatient)
		w.startProducer("abandoner", (*client).runAbandoner)
		for i := range 2 {
			v2 := w.chance(60)
			w.startClient(fmt.Sprintf("processor-%d", i), true, func(c *client) { c.runProcessor(v2) })
			w.startClient(fmt.Sprintf("consumer-%d", i), true, (*client).runConsumer)
		}
		w.startClient("committer", true, (*client).runCommitter)
		w.startVolatile()
		w.startModern()
		w.startOperators()
	})
}

// startProducer starts a client that others wait for, since it writes what they read.
func (w *World) startProducer(name string, body func(c *client)) {
	started := w.startClient(name, true, func(c *client) {
		body(c)
		w.producers--
	})
	if started {
		w.producers++
	}
}

// runInitializer asks for producer ids, and for epochs of a transactional id that many want, while power is lost before syncs
// that nobody waited for. Those who had the id before go on as if they did not know, and some are not known to be fenced any more.
func (c *client) runInitializer() {
	w := c.w
	var owners []*session
	for rank := range 60 {
		c.initIdempotent()
		if w.chance(50) {
			s := &session{c: c, id: "wanted", rank: rank, v2: true, current: func() bool { return true }}
			s.init(false)
			owners = append(owners, s)
		}
		for _, s := range owners {
			if w.chance(20) {
				s.end(w.beginTransaction(fmt.Sprintf("wanted-%d", s.rank)), false)
			}
		}
		if !w.healed && w.chance(20) {
			w.after(w.Int64N(20*msInUs), func() { w.crash("power loss", true) })
		}
		c.sleep(w.Int64N(400 * msInUs))
	}
}

func (c *client) createTopics() {
	for _, topic := range topics {
		c.createTopic(topic)
	}
	if !c.w.mode.lossy {
		c.createTopic(trimmedTopic)
	}
}

// createTopic makes a topic with the settings that this run has for it, if it is not there.
func (c *client) createTopic(topic string) {
	c.insist(func() kmsg.Request {
		req := kmsg.NewPtrCreateTopicsRequest()
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = topic, inputPartitions, 1
		set := func(name, value string) {
			config := kmsg.NewCreateTopicsRequestTopicConfig()
			config.Name, config.Value = name, &value
			t.Configs = append(t.Configs, config)
		}
		set(afterMaxSetting[0], afterMaxSetting[1])
		if topic == "plain" {
			set("compression.type", c.w.mode.codec)
		}
		if topic == "out" && c.w.mode.appendTime {
			set("message.timestamp.type", "LogAppendTime")
		}
		req.Topics = append(req.Topics, t)
		return req
	}, 7)
}

// runCommitter commits offsets from outside any group: what was acknowledged never goes back (V5), except to one of
// which an attempt may still be under way, since nothing orders requests over connections.
func (c *client) runCommitter() {
	tried, least := int64(0), int64(15)
	for range 15 {
		tried++
		resp, certain := c.insist(func() kmsg.Request { return memberlessCommit("committer", tried) }, 8)
		if code := resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
			c.unexpected("OffsetCommit", code)
		}
		if !certain {
			least = min(least, tried)
		}
		c.sleep(c.w.Int64N(1500 * msInUs))
		if got := c.committedOf("committer", "in", 0); got < min(tried, least) || got > tried {
			c.w.fail("committed offset: %s: offset %d is committed, %d was acknowledged last, %d may be late", c.name, got, tried, least)
		}
	}
}

// committedOf fetches a stable committed offset, -1 if there is none.
func (c *client) committedOf(group, topic string, partition int32) int64 {
	for {
		resp, _ := c.insist(func() kmsg.Request {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Group, req.RequireStable = group, true
			t := kmsg.NewOffsetFetchRequestTopic()
			t.Topic, t.Partitions = topic, []int32{partition}
			req.Topics = append(req.Topics, t)
			return req
		}, 7)
		r := resp.(*kmsg.OffsetFetchResponse)
		if r.ErrorCode == kerr.UnstableOffsetCommit.Code || r.ErrorCode == 0 && r.Topics[0].Partitions[0].ErrorCode == kerr.UnstableOffsetCommit.Code {
			c.sleep(20 * msInUs)
			continue
		}
		if r.ErrorCode != 0 || r.Topics[0].Partitions[0].ErrorCode != 0 {
			c.unexpected("OffsetFetch", r.ErrorCode)
		}
		return r.Topics[0].Partitions[0].Offset
	}
}

// freshProducerID notes a producer id that must never have been given out before, and not be again.
func (c *client) freshProducerID(pid int64) {
	if who, taken := c.w.history.pids[pid]; taken {
		c.w.fail("producer id: %s: producer id %d was given to %s before", c.name, pid, who)
	}
	c.w.history.pids[pid] = c.name
}

// memberlessCommit sets the offset of partition 0 of "in" for a group without members.
func memberlessCommit(group string, offset int64) kmsg.Request {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = "in"
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = offset
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}
