package txn

import (
	"slices"

	"github.com/strandline-io/strandline/internal/mutant"
)

// Path is one of the ways by which a client of transaction version 1 reaches the broker. A client has one connection for
// each of them at a time, or one for several; when a connection fails, it opens another one and never uses the old one
// again.
type Path uint8

const (
	Coordination Path = iota // AddPartitionsToTxn, AddOffsetsToTxn, EndTxn
	Offsets                  // TxnOffsetCommit
	Data                     // Produce
	numPaths
)

// connections are those by which the current producer of a transactional id speaks, by their numbers, which rise in the order
// of their coming. They are volatile: connections end with the broker.
type connections struct {
	newest [numPaths]uint64
	left   [4]uint64 // the last ones that newer ones have replaced, whatever the path
	next   uint8     // of left
}

// late reports whether the client has left the connection; if not, it has left the one before.
func (c *connections) late(path Path, connection uint64) bool {
	newest := &c.newest[path]
	switch {
	case connection < *newest, slices.Contains(c.left[:], connection):
		return true
	case connection > *newest && *newest > 0:
		c.left[c.next%uint8(len(c.left))] = *newest
		c.next++
	}
	*newest = connection
	return false
}

// Late reports that a request of the current producer comes late: by a connection that its client has replaced by a newer one
// since. The client has sent the request again, or given it up: it may belong to a transaction that has ended, and the epoch,
// which does not rise with every transaction in version 1, cannot tell (KAFKA-17754; kafka-eos.md I.1). A request that is not
// late is noted. Requests of other producers are never late, they are refused for what they are; nor are those of connection 0,
// which stands for none.
func (c *Coordinator) Late(p Producer, path Path, connection uint64) bool {
	t := c.byID[p.ID]
	if connection == 0 || t == nil || t.ProducerID != p.ProducerID || t.Epoch != p.Epoch || mutant.On("late request taken for the next transaction's") {
		return false
	}
	return t.spoken.late(path, connection)
}
