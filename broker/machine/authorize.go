package machine

import "github.com/twmb/franz-go/pkg/kmsg"

// access is one permission that an operation needs (kafka-eos.md F.3).
type access struct {
	operation kmsg.ACLOperation
	resource  kmsg.ACLResourceType
	name      string
}

// anybodyMay is the rule until sign-in and ACLs exist. Machine.may is the one place where an operation is authorized;
// a rule must depend on nothing but its arguments and durable state.
func anybodyMay(*Client, access) bool { return true }

// clusterName is the cluster's name as a resource.
const clusterName = "kafka-cluster"

// anyTopic stands for some topic, whichever: no topic has this name.
const anyTopic = ""

func (m *Machine) mayTopic(op kmsg.ACLOperation, name string) bool {
	return m.may(&m.step.op.Client, access{op, kmsg.ACLResourceTypeTopic, name})
}

func (m *Machine) mayGroup(op kmsg.ACLOperation, name string) bool {
	return m.may(&m.step.op.Client, access{op, kmsg.ACLResourceTypeGroup, name})
}

func (m *Machine) mayTransactional(op kmsg.ACLOperation, name string) bool {
	return m.may(&m.step.op.Client, access{op, kmsg.ACLResourceTypeTransactionalId, name})
}

func (m *Machine) mayCluster(op kmsg.ACLOperation) bool {
	return m.may(&m.step.op.Client, access{op, kmsg.ACLResourceTypeCluster, clusterName})
}
