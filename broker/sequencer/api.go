// Package sequencer is the broker's one loop: decide, journal, publish, and only then reply. Core is a reactor
// without goroutines; Sequencer drives it. What readers may see hangs on the Board.
package sequencer

import "github.com/strandline-io/strandline/broker/machine"

// Operation is one request on its way through the loop.
type Operation struct {
	machine.Op
	// Box gets the reply. It may be nil for operations without one.
	Box Mailbox
	// SizeBytes is what the operation may add to the journal; it counts against a group's bound (Limits) and the space
	// that the journal has ready.
	SizeBytes int64
	// Written, when not nil, is called once the operation's buffers are no longer needed: after the write that
	// carries them, or at once if nothing of them is written.
	Written func()
}

// Mailbox receives a connection's replies. Deliver is called once per group and connection, with all replies that
// became free, in the order in which they were decided; it must not block.
type Mailbox interface {
	Deliver([]machine.Reply)
}
