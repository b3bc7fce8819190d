package machine

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

// DeleteTopics (key 20), v1 to 6. v6 may name topics by id. An open transaction that wrote to a deleted topic goes on
// and ends without it.

func (m *Machine) deleteTopics(req *kmsg.DeleteTopicsRequest) {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	if req.Version < 6 {
		for _, name := range req.TopicNames {
			resp.Topics = append(resp.Topics, m.deleteOne(&name, [16]byte{}))
		}
	} else {
		for i := range req.Topics {
			resp.Topics = append(resp.Topics, m.deleteOne(req.Topics[i].Topic, req.Topics[i].TopicID))
		}
	}
	m.reply(resp)
}

func (m *Machine) deleteOne(name *string, id [16]byte) kmsg.DeleteTopicsResponseTopic {
	r := kmsg.NewDeleteTopicsResponseTopic()
	r.Topic, r.TopicID = name, id
	t, why := m.findDeleted(name, id)
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
		if t = m.topics[*name]; t == nil {
			return nil, refuse(kerr.UnknownTopicOrPartition, "there is no topic %q", *name)
		}
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
