package machine

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

// DeleteTopics (key 20), v1 to 6. v6 may name topics by id. An open transaction that wrote to a deleted topic goes on
// and ends without it.

const deleteByID = 6

func (m *Machine) deleteTopics(req *kmsg.DeleteTopicsRequest) {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	named := req.Topics
	if req.Version < deleteByID {
		named = make([]kmsg.DeleteTopicsRequestTopic, len(req.TopicNames))
		for i := range req.TopicNames {
			named[i].Topic = &req.TopicNames[i]
		}
	}
	for i, times := range timesNamed(len(named), func(i int) deletedKey { return m.deletedKey(&named[i]) }) {
		if times > 0 {
			resp.Topics = append(resp.Topics, m.deleteOne(named[i].Topic, named[i].TopicID, times))
		}
	}
	m.reply(resp)
}

// deletedKey tells topics of a request apart. One that is named by its name and by its id as well is named twice.
type deletedKey struct {
	name string
	id   [16]byte
}

func (m *Machine) deletedKey(r *kmsg.DeleteTopicsRequestTopic) deletedKey {
	k := deletedKey{id: r.TopicID}
	if r.Topic != nil {
		k.name = *r.Topic
	} else if t := m.topicsByID[r.TopicID]; t != nil {
		k = deletedKey{name: t.Name}
	}
	return k
}

func (m *Machine) deleteOne(name *string, id [16]byte, times int) kmsg.DeleteTopicsResponseTopic {
	r := kmsg.NewDeleteTopicsResponseTopic()
	r.Topic, r.TopicID = name, id
	t, why := m.findDeleted(name, id)
	if times > 1 {
		why = refuse(kerr.InvalidRequest, "the request names this topic %d times", times)
	}
	if why != nil {
		r.ErrorCode, r.ErrorMessage = why.code.Code, kmsg.StringPtr(why.message)
		return r
	}
	r.Topic, r.TopicID = kmsg.StringPtr(t.Name), t.ID
	m.record(kindTopicDeleted, codec.AppendString(m.beginRecord(), t.Name))
	// Its files are removed next: after a lost tail it would be there again, and they would be missing.
	m.step.mustSync = true
	m.step.out.Topics = append(m.step.out.Topics, TopicChange{Topic: *t.Topic, Deleted: true})
	return r
}

func (m *Machine) findDeleted(name *string, id [16]byte) (*topic, *refusal) {
	var t *topic
	switch {
	case name != nil && id != [16]byte{}:
		return nil, refuse(kerr.InvalidRequest, "topic %q is named by an id as well; name it by one of both", *name)
	case name != nil:
		if t = m.topics[*name]; t == nil && !m.mayTopic(kmsg.ACLOperationDescribe, *name) {
			return nil, refuse(kerr.TopicAuthorizationFailed, "the client may not know whether there is such a topic")
		} else if t == nil {
			return nil, refuse(kerr.UnknownTopicOrPartition, "there is no topic %q", *name)
		}
	case id == [16]byte{}:
		return nil, refuse(kerr.InvalidRequest, "neither a topic's name nor its id is given")
	default:
		if t = m.topicsByID[id]; t == nil {
			return nil, refuse(kerr.UnknownTopicID, "no topic has the id %x", id)
		}
	}
	if !m.mayTopic(kmsg.ACLOperationDelete, t.Name) {
		return nil, refuse(kerr.TopicAuthorizationFailed, "the client may not delete the topic")
	}
	return t, nil
}
