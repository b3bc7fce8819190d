package state

import (
	"context"
	"fmt"

	"github.com/strandline-io/strandline/internal/mutant"
)

// restoreChunk is how many changelog records are applied at a time.
const restoreChunk = 10_000

// Changelog reads one partition of a changelog: committed records in order, from an offset until the position reaches
// end; it returns the position. Each record goes to f; a nil value is a deletion.
type Changelog func(ctx context.Context, from, end int64, f func(key, value []byte) error) (next int64, err error)

// Restore brings a store up to the changelog's end. Content that may not be reused is given up first. end is to be
// taken read_uncommitted after the newest transaction of the store's former owner is known to be decided (OffsetFetch
// with require-stable): then everything that was committed lies below it.
func Restore(ctx context.Context, s Store, topicID string, end, nowMs int64, read Changelog) error {
	stamp := s.Stamp()
	if !stamp.Reusable(topicID, end, nowMs, DefaultDeleteRetention) {
		if err := s.Close(); err != nil {
			return err
		}
		stamp = Stamp{TopicID: topicID, AtMs: nowMs}
	}
	var chunk []Write
	var chunkBytes int64
	flush := func(next int64) error {
		if err := s.CheckRoom(chunkBytes); err != nil {
			return err
		}
		stamp = Stamp{TopicID: topicID, NextOffset: next, AtMs: nowMs}
		if err := s.Apply(chunk, stamp); err != nil {
			return err
		}
		chunk, chunkBytes = nil, 0
		return nil
	}
	from := stamp.NextOffset
	if from > 0 && mutant.On("local store reused beyond its stamp") {
		from = end
	}
	next, err := read(ctx, from, end, func(key, value []byte) error {
		chunk = append(chunk, Write{key, value})
		if value != nil {
			chunkBytes += int64(len(key)+len(value)) + entryOverheadBytes
		}
		if len(chunk) < restoreChunk {
			return nil
		}
		return flush(stamp.NextOffset)
	})
	if err != nil {
		return fmt.Errorf("state: reading the changelog from offset %d to %d: %w", stamp.NextOffset, end, err)
	}
	return flush(max(next, stamp.NextOffset))
}
