package txn

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// MaxEpoch is the highest producer epoch that a client is ever given. One more exists for the markers of a last
// transaction; then the producer id is replaced.
const MaxEpoch int16 = 32766

// None stands for no producer id, no epoch and no time.
const None = -1

// Producer is who asks, by what InitProducerId gave it.
type Producer struct {
	ID         string // transactional id
	ProducerID int64
	Epoch      int16
}

// Entry is all that is durable about one transactional id. Times are engine milliseconds.
type Entry struct {
	ID             string
	ProducerID     int64
	PrevProducerID int64 // the id that ProducerID replaced, None without
	Epoch          int16
	LastEpoch      int16 // the epoch that a client may come back with after a lost answer, None without
	TimeoutMs      int32
	State          State
	StartMs        int64 // of the open transaction, None without
	UpdatedMs      int64
	Partitions     []uint32 // of the open transaction, ascending
	Groups         []string // of the open transaction, in the order of their coming
}

// The records: outcomes, applied alike by the running broker and by replay.
type (
	// Init gives a transactional id its producer id and epoch; it is Empty then.
	Init struct {
		ID             string
		ProducerID     int64
		PrevProducerID int64
		Epoch          int16
		LastEpoch      int16
		TimeoutMs      int32
	}
	// Add takes partitions and groups into the transaction, which it opens if none is open.
	Add struct {
		ID         string
		Partitions []uint32
		Groups     []string
	}
	// End ends the transaction. ProducerID and Epoch are those for the next one.
	End struct {
		ID             string
		Commit         bool
		Fence          bool // the broker ended it: its time was up or a new producer came
		ProducerID     int64
		PrevProducerID int64
		Epoch          int16
		LastEpoch      int16
	}
	// Expire forgets the transactional id.
	Expire struct {
		ID string
	}
)

// Ending is a transaction's end, decided: its record, and what its markers must say.
type Ending struct {
	Record     End
	ProducerID int64
	Epoch      int16    // the markers' producer epoch
	Bumped     bool     // Epoch is above that of the transaction's data
	Partitions []uint32 // valid until the record is applied
}

// Refusal is the protocol's no: its code and the two values that disagree.
type Refusal struct {
	Code         *kerr.Error
	What         string
	Got, Current int64
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%s: %s is %d, not %d", r.Code.Message, r.What, r.Got, r.Current)
}

func refuse(code *kerr.Error, what string, got, current int64) *Refusal {
	return &Refusal{Code: code, What: what, Got: got, Current: current}
}
