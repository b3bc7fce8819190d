// Package state holds the committed content of keyed stores: one Store per task and store. What a task writes in a
// running transaction is staged above it, by package task/core, and reaches the Store only after the commit, together
// with the changelog offset that it reflects. So a store is never ahead of its changelog, an aborted transaction leaves
// no trace in it, and a reader of a Snapshot never sees half of a transaction.
//
// The changelog is a compacted topic with one partition per task; docs/formats/state.md is its page.
package state

import (
	"fmt"
	"time"
)

// Store is the committed content of one task's part of one store. One goroutine applies; reads of the Store itself must
// not overlap with Apply, reads of a Snapshot may.
type Store interface {
	Reader
	// Apply makes the writes of one committed transaction visible at once and stamps the store. next is the changelog
	// offset behind the writes' records; it must not go back. The store keeps Key and Value.
	Apply(writes []Write, stamp Stamp) error
	// Stamp tells how much of the changelog the content reflects.
	Stamp() Stamp
	// CheckRoom says, before a transaction is committed, whether entries of addBytes more would fit. The error is a
	// *FullError. A commit never fails for size afterwards.
	CheckRoom(addBytes int64) error
	// Snapshot is the content of this moment. It costs little and stays valid after Close.
	Snapshot() Reader
	// SizeBytes is about what the entries hold, keys and values and overhead.
	SizeBytes() int64
	// Close gives up the content.
	Close() error
}

// Reader reads entries in the byte order of their keys.
type Reader interface {
	// Get returns the value of key. Nobody may change it; it stays as it is until the next Apply.
	Get(key []byte) (value []byte, ok bool, err error)
	// Range calls f for from <= key < to in ascending order until f returns false. A nil to has no end. f must not
	// change or keep the bytes, nor apply to the store.
	Range(from, to []byte, f func(key, value []byte) bool) error
	// Len is the number of entries.
	Len() int
}

// Write sets a key, or deletes it if Value is nil.
type Write struct{ Key, Value []byte }

// Stamp says what a store's content reflects.
type Stamp struct {
	// TopicID is the changelog topic's id; "" where the cluster has none.
	TopicID string
	// NextOffset is the changelog offset behind the newest record that the content reflects.
	NextOffset int64
	// AtMs is when that was, in Unix milliseconds.
	AtMs int64
}

// Reusable reports whether content with this stamp may be brought up to date by reading the changelog from NextOffset
// on, instead of from its start: it is of the same topic, it is not beyond the changelog's end, and it is younger than
// half of the time for which the topic keeps tombstones (an older one could miss deletions that compaction has removed).
func (s Stamp) Reusable(topicID string, endOffset, nowMs int64, deleteRetention time.Duration) bool {
	age := nowMs - s.AtMs
	return s.TopicID == topicID && s.NextOffset <= endOffset && age >= 0 && age < deleteRetention.Milliseconds()/2
}

// DefaultDeleteRetention is Kafka's delete.retention.ms.
const DefaultDeleteRetention = 24 * time.Hour

// DefaultMaxBytes bounds one task's part of a store in memory.
const DefaultMaxBytes = 1 << 30

// FullError says that a store has no room for a transaction's writes.
type FullError struct {
	Store     string
	SizeBytes int64
	AddBytes  int64
	MaxBytes  int64
}

func (e *FullError) Error() string {
	return fmt.Sprintf("state: store %s holds %d bytes and has no room for %d more under its bound of %d: "+
		"raise the bound, use more partitions, or keep less per key", e.Store, e.SizeBytes, e.AddBytes, e.MaxBytes)
}
