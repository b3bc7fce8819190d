package machine

import "github.com/twmb/franz-go/pkg/kmsg"

// Access is one permission that an operation needs (kafka-eos.md F.3).
type Access struct {
	Operation kmsg.ACLOperation
	Resource  kmsg.ACLResourceType
	Name      string
}

// Authorizer says whether a client may do something. It is asked by the machine, and by connections for what they answer without
// the loop, so from many goroutines. What it says must depend on nothing but its arguments and durable state.
type Authorizer func(*Client, Access) bool

func anybodyMay(*Client, Access) bool { return true }

// ClusterName is the cluster's name as a resource.
const ClusterName = "kafka-cluster"

// anyTopic stands for some topic, whichever: no topic has this name.
const anyTopic = ""

func (m *Machine) mayTopic(op kmsg.ACLOperation, name string) bool {
	return m.may(&m.step.op.Client, Access{op, kmsg.ACLResourceTypeTopic, name})
}

func (m *Machine) mayGroup(op kmsg.ACLOperation, name string) bool {
	return m.may(&m.step.op.Client, Access{op, kmsg.ACLResourceTypeGroup, name})
}

func (m *Machine) mayTransactional(op kmsg.ACLOperation, name string) bool {
	return m.may(&m.step.op.Client, Access{op, kmsg.ACLResourceTypeTransactionalId, name})
}

func (m *Machine) mayCluster(op kmsg.ACLOperation) bool {
	return m.may(&m.step.op.Client, Access{op, kmsg.ACLResourceTypeCluster, ClusterName})
}
