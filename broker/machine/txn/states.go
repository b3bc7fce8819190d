package txn

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// State is where a transactional id stands. The numbers are Kafka's (kafka-eos.md B.2).
type State uint8

const (
	Empty State = iota
	Ongoing
	PrepareCommit
	PrepareAbort
	CompleteCommit
	CompleteAbort
	Dead
	PrepareEpochFence
	numStates
)

// A rule is what a state allows. Prepare states, the fence and Dead are passed through inside one unit: no operation
// finds an id in them, but their rows say what it would hear.
type rule struct {
	name string // as DescribeTransactions shows it
	from []State
	// add is the refusal that adding a partition or a group, or InitProducerId, hears; nil if it may go on.
	add *kerr.Error
}

var rules = [numStates]rule{
	Empty:             {name: "Empty", from: []State{Empty, CompleteCommit, CompleteAbort}},
	Ongoing:           {name: "Ongoing", from: []State{Ongoing, Empty, CompleteCommit, CompleteAbort}},
	PrepareCommit:     {name: "PrepareCommit", from: []State{Ongoing}, add: kerr.ConcurrentTransactions},
	PrepareAbort:      {name: "PrepareAbort", from: []State{Ongoing, PrepareEpochFence, Empty, CompleteCommit, CompleteAbort}, add: kerr.ConcurrentTransactions},
	CompleteCommit:    {name: "CompleteCommit", from: []State{PrepareCommit}},
	CompleteAbort:     {name: "CompleteAbort", from: []State{PrepareAbort}},
	Dead:              {name: "Dead", from: []State{Empty, CompleteCommit, CompleteAbort}, add: kerr.ConcurrentTransactions},
	PrepareEpochFence: {name: "PrepareEpochFence", from: []State{Ongoing}, add: kerr.ConcurrentTransactions},
}

// String is the name that DescribeTransactions shows.
func (s State) String() string {
	if s < numStates {
		return rules[s].name
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// KnownState reports whether a state is called name.
func KnownState(name string) bool {
	for _, r := range rules {
		if r.name == name {
			return true
		}
	}
	return false
}

// CanFollow reports whether an id may move from prev to s.
func (s State) CanFollow(prev State) bool {
	for _, f := range rules[s].from {
		if f == prev {
			return true
		}
	}
	return false
}

// verdict is what an EndTxn leads to.
type verdict uint8

const (
	refuseFenced     verdict = iota // PRODUCER_FENCED
	refuseState                     // INVALID_TXN_STATE
	refuseConcurrent                // CONCURRENT_TRANSACTIONS
	refuseMapping                   // INVALID_PRODUCER_ID_MAPPING
	endIt                           // end the transaction; in version 2 with a higher epoch, also when nothing was added
	endedBefore                     // success: an earlier attempt of this very request did it
)

// relation says how an EndTxn's epoch stands to the id's. Version 1 knows only current.
type relation uint8

const (
	current  relation = iota
	retry             // one behind, or rotated away: what an EndTxn that succeeded leaves behind
	other             // anything else
	numRelat = 3
)

// Indexes of the tables below.
const (
	abort  = 0
	commit = 1
)

// endV1 answers EndTxn v0 to v4 at the current epoch (kafka-eos.md B.7).
var endV1 = [numStates][2]verdict{
	Empty:             {abort: refuseState, commit: refuseState},
	Ongoing:           {abort: endIt, commit: endIt},
	PrepareCommit:     {abort: refuseState, commit: refuseConcurrent},
	PrepareAbort:      {abort: refuseConcurrent, commit: refuseState},
	CompleteCommit:    {abort: refuseState, commit: endedBefore},
	CompleteAbort:     {abort: endedBefore, commit: refuseState},
	Dead:              {abort: refuseMapping, commit: refuseMapping},
	PrepareEpochFence: {abort: refuseConcurrent, commit: refuseConcurrent},
}

// endV2 answers EndTxn v5 (kafka-eos.md B.8). What is not named is PRODUCER_FENCED.
var endV2 = [numStates][2][numRelat]verdict{
	Empty: {
		abort:  {current: endIt},
		commit: {current: refuseState},
	},
	Ongoing: {
		abort:  {current: endIt},
		commit: {current: endIt},
	},
	PrepareCommit: {
		abort:  {retry: refuseState},
		commit: {retry: refuseConcurrent},
	},
	PrepareAbort: {
		abort:  {retry: refuseConcurrent},
		commit: {retry: refuseState},
	},
	CompleteCommit: {
		abort:  {retry: refuseState, current: endIt},
		commit: {retry: endedBefore, current: refuseState},
	},
	CompleteAbort: {
		abort:  {retry: endedBefore, current: endIt},
		commit: {retry: refuseState, current: refuseState},
	},
	Dead: {
		abort:  {current: refuseMapping, retry: refuseMapping, other: refuseMapping},
		commit: {current: refuseMapping, retry: refuseMapping, other: refuseMapping},
	},
	PrepareEpochFence: {
		abort:  {current: refuseConcurrent, retry: refuseConcurrent, other: refuseConcurrent},
		commit: {current: refuseConcurrent, retry: refuseConcurrent, other: refuseConcurrent},
	},
}
