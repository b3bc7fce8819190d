// Package group coordinates consumer groups, classic ones (KIP-62, KIP-345, KIP-394) and those of KIP-848, and keeps
// committed offsets, plain and transactional (KIP-98, KIP-447). Membership in flux is volatile; group metadata and offsets are durable and
// move only through Apply.
package group

import "github.com/twmb/franz-go/pkg/kmsg"

// Context is what one operation may use while the coordinator decides it. The machine implements it.
type Context interface {
	WallMs() int64
	EngineMs() int64
	// OpID names the operation that is being decided, for a reply that has to wait.
	OpID() uint64
	ClientID() string
	ClientHost() string
	// NewID returns a fresh random UUID string, derived from the operation.
	NewID() string
	// Record makes one durable record part of the operation's unit and applies it at once: the machine calls
	// Groups.Apply with the same kind and payload before Record returns. Kinds are 64 to 95.
	Record(kind uint8, payload []byte)
	// Reply answers an operation, this one or one that was parked.
	Reply(opID uint64, resp kmsg.Response)
	// May reports whether the client may do that to a resource.
	May(op kmsg.ACLOperation, resource kmsg.ACLResourceType, name string) bool
	// Topic describes a topic by name. TopicByID finds its name.
	Topic(name string) (id [16]byte, partitions int32, ok bool)
	TopicByID(id [16]byte) (name string, ok bool)
	// TopicsVersion is above 0 and rises whenever a topic comes or goes or gets partitions. It starts anew with each run.
	TopicsVersion() uint64
}
