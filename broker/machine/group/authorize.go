package group

import "github.com/twmb/franz-go/pkg/kmsg"

// What a client may not do is told before anything else (kafka-eos.md D, F.3).

func mayGroup(ctx Context, op kmsg.ACLOperation, name string) bool {
	return ctx.May(op, kmsg.ACLResourceTypeGroup, name)
}

func mayTopic(ctx Context, op kmsg.ACLOperation, name string) bool {
	return ctx.May(op, kmsg.ACLResourceTypeTopic, name)
}

// clusterName is the cluster's name as a resource.
const clusterName = "kafka-cluster"

// maySeeGroups reports whether the client may see all groups, whichever.
func maySeeGroups(ctx Context) bool {
	return ctx.May(kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeCluster, clusterName)
}
