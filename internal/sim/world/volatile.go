package world

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
)

// volatileTopic is deleted and made again while others write to it and read it. What is in it may go; what was in one
// life must never be seen in another.
const volatileTopic = "volatile"

func (w *World) startVolatile() {
	w.volatileLives = 2 + w.IntN(5)
	w.startClient("recreator", true, (*client).runRecreator)
	w.startClient("volatile-writer", true, (*client).runVolatileWriter)
	for i := range int32(inputPartitions) {
		w.startReader(fmt.Sprintf("reader-%s", partitionName(volatileTopic, i)), func(c *client) { c.followLives(i, i == 0) })
	}
}

func (c *client) runRecreator() {
	w := c.w
	for ; w.volatileLives > 0; w.volatileLives-- {
		c.createTopic(volatileTopic)
		c.sleep(w.Int64N(6 * secondInUs))
		if w.volatileLives == 1 {
			continue // the last one stays
		}
		c.insist(func() kmsg.Request {
			req := kmsg.NewPtrDeleteTopicsRequest()
			t := kmsg.NewDeleteTopicsRequestTopic()
			t.Topic = kmsg.StringPtr(volatileTopic)
			req.Topics = append(req.Topics, t)
			return req
		}, 6)
		c.tracef("%s is deleted", volatileTopic)
		c.sleep(w.Int64N(secondInUs))
	}
}

// topicID asks for the id that a topic has now; ok is false if there is none.
func (c *client) topicID(name string) (id [16]byte, ok bool) {
	resp, _ := c.insist(func() kmsg.Request {
		req := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
		return req
	}, 12)
	t := resp.(*kmsg.MetadataResponse).Topics[0]
	return t.TopicID, t.ErrorCode == 0
}

// runVolatileWriter writes to the life that it knows of, by its id.
func (c *client) runVolatileWriter() {
	var id [16]byte
	for known := false; c.w.volatileLives > 0; {
		if !known {
			if id, known = c.topicID(volatileTopic); !known {
				c.sleep(c.w.Int64N(200 * msInUs))
			}
			continue
		}
		partition := c.w.Int32N(inputPartitions)
		place := partitionName(lifeName(id), partition)
		b := c.build(record.NewBuilder(), place, "", partition, c.name, nil, nil)
		b.topicID = id
		resp := c.ask(produceRequest(1, nil, b), 13)
		c.sleep(c.w.Int64N(300 * msInUs))
		if resp == nil {
			continue
		}
		switch p := b.outcome(resp); {
		case p.ErrorCode == 0:
			c.acknowledged(b, p.BaseOffset)
		case p.ErrorCode == kerr.UnknownTopicID.Code:
			known = false
		case !takesAgain(p.ErrorCode):
			c.unexpected("Produce", p.ErrorCode)
		}
	}
}

// followLives reads one life of the topic after the other.
func (c *client) followLives(partition int32, committed bool) {
	w := c.w
	var u *cursor
	for {
		over := w.healed && w.writers == 0
		if u == nil {
			id, ok := c.topicID(volatileTopic)
			switch {
			case ok:
				u = &cursor{topicID: id, partition: partition, committed: committed}
			case over:
				return
			default:
				c.sleep(w.Int64N(300 * msInUs))
			}
			continue
		}
		values, ok := c.fetch(u)
		switch {
		case u.code == kerr.UnknownTopicID.Code, u.code == kerr.UnknownTopicOrPartition.Code:
			u = nil // a fetch session knew it, and says the latter
		case ok && over && u.atEnd():
			return
		case len(values) == 0:
			c.sleep(20*msInUs + w.Int64N(300*msInUs))
		}
	}
}
