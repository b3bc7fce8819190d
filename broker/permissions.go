package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/edge"
	"github.com/strandline-io/strandline/broker/machine"
)

// What is answered without the loop asks here what the machine asks for all the rest: Config.may, which is nil until there are
// ACLs, so that nothing is asked and nothing made up for a question.

func (c *conn) may(s *slot, a machine.Access) bool {
	if c.b.cfg.may == nil {
		return true
	}
	client := c.client(s)
	return c.b.cfg.may(&client, a)
}

func (c *conn) mayCluster(s *slot, op kmsg.ACLOperation) bool {
	return c.may(s, machine.Access{Operation: op, Resource: kmsg.ACLResourceTypeCluster, Name: machine.ClusterName})
}

func (c *conn) topicPermissions(s *slot) edge.Permissions {
	if c.b.cfg.may == nil {
		return nil
	}
	client := c.client(s)
	return func(op kmsg.ACLOperation, topic string) bool {
		return c.b.cfg.may(&client, machine.Access{Operation: op, Resource: kmsg.ACLResourceTypeTopic, Name: topic})
	}
}
