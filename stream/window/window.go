// Package window assigns event times to windows and keeps their aggregates in a keyed store: a window [start, end) is
// open until the watermark reaches end, then it is complete, is given out once, and is gone; what comes for it later is
// late. It is pure.
package window

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Store is what windows need of a store. Keys are ordered as bytes; f of Range must not call the store.
type Store interface {
	Get(key []byte) (value []byte, ok bool, err error)
	Put(key, value []byte) error
	Delete(key []byte) error
	Range(from, to []byte, f func(key, value []byte) bool) error
}

// Tumbling are windows of one size, side by side, aligned to 1970-01-01 00:00 UTC. One value serves one task. The zero
// watermark state is "nothing closed"; it is not stored here: after a restore, the first Close repeats the watermark
// that the checkpoint holds, before any Add.
type Tumbling struct {
	sizeMs   int64
	closedMs int64 // windows with end <= closedMs are closed
	// While mayHold, nextEndMs is a lower bound of the ends of the windows in the store, so that most watermarks need
	// no read; otherwise the store holds none.
	mayHold   bool
	nextEndMs int64
}

// NewTumbling returns windows of sizeMs > 0.
func NewTumbling(sizeMs int64) *Tumbling {
	if sizeMs <= 0 {
		panic("BUG: window size must be positive")
	}
	return &Tumbling{sizeMs: sizeMs, closedMs: math.MinInt64, mayHold: true, nextEndMs: math.MinInt64}
}

// Bounds returns the window [startMs, endMs) that holds timeMs >= 0. The last window before the end of int64 is cut
// short.
func (t *Tumbling) Bounds(timeMs int64) (startMs, endMs int64) {
	startMs = timeMs - timeMs%t.sizeMs
	if startMs > math.MaxInt64-t.sizeMs {
		return startMs, math.MaxInt64
	}
	return startMs, startMs + t.sizeMs
}

// Late reports whether the window of timeMs is closed.
func (t *Tumbling) Late(timeMs int64) bool {
	_, endMs := t.Bounds(timeMs)
	return endMs <= t.closedMs
}

// Add folds one record into the aggregate of its window and key: add gets the stored aggregate (ok = false for a new
// window) and returns the new one. A record of a closed window is late: nothing is called and nothing changes.
func (t *Tumbling) Add(s Store, timeMs int64, key []byte, add func(old []byte, ok bool) ([]byte, error)) (late bool, err error) {
	if timeMs < 0 {
		return false, errors.New("event time is before 1970")
	}
	_, endMs := t.Bounds(timeMs)
	if endMs <= t.closedMs {
		return true, nil
	}
	storeKey := AppendKey(nil, endMs, key)
	old, ok, err := s.Get(storeKey)
	if err != nil {
		return false, err
	}
	value, err := add(old, ok)
	if err != nil {
		return false, err
	}
	if err := s.Put(storeKey, value); err != nil {
		return false, err
	}
	if !t.mayHold || endMs < t.nextEndMs {
		t.mayHold, t.nextEndMs = true, endMs
	}
	return false, nil
}

// Close gives out the windows with end <= watermarkMs in (end, key) order, at most limit of them, and deletes each.
// done = false means that more are due: Close is called again with the same watermark. From the first call on, records
// for windows up to watermarkMs are late. An error of emit ends the call; that entry stays.
func (t *Tumbling) Close(s Store, watermarkMs int64, limit int, emit func(startMs, endMs int64, key, value []byte) error) (done bool, err error) {
	t.closedMs = max(t.closedMs, watermarkMs)
	if !t.isDue() {
		return true, nil
	}
	due, err := t.due(s, limit)
	if err != nil {
		return false, err
	}
	for _, e := range due {
		endMs, key, err := SplitKey(e.storeKey)
		if err != nil {
			return false, err
		}
		if err := emit(t.start(endMs), endMs, key, e.value); err != nil {
			return false, err
		}
		if err := s.Delete(e.storeKey); err != nil {
			return false, err
		}
	}
	return !t.isDue(), nil
}

func (t *Tumbling) isDue() bool { return t.mayHold && t.nextEndMs <= t.closedMs }

// start is the inverse of Bounds: only the window that was cut short has an unaligned end.
func (t *Tumbling) start(endMs int64) int64 {
	if rest := endMs % t.sizeMs; rest != 0 {
		return endMs - rest
	}
	return endMs - t.sizeMs
}

type entry struct{ storeKey, value []byte }

// due reads up to limit due entries and moves the lower bound behind them.
func (t *Tumbling) due(s Store, limit int) ([]entry, error) {
	var (
		due  []entry
		bad  error
		more bool
		next int64
	)
	err := s.Range(nil, nil, func(storeKey, value []byte) bool {
		endMs, _, err := SplitKey(storeKey)
		if err != nil {
			bad = err
			return false
		}
		if endMs > t.closedMs || len(due) >= limit {
			more, next = true, endMs
			return false
		}
		due = append(due, entry{bytes.Clone(storeKey), bytes.Clone(value)})
		return true
	})
	if err = errors.Join(err, bad); err != nil {
		return nil, err
	}
	t.mayHold, t.nextEndMs = more, next
	return due, nil
}

// AppendKey appends the store key of a window and a key: the end as eight bytes big-endian, then the key. Ends are
// positive, so the order of bytes is the order (end, key).
func AppendKey(dst []byte, endMs int64, key []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(endMs))
	return append(dst, key...)
}

// SplitKey is the inverse of AppendKey. key aliases storeKey. An error means a damaged store.
func SplitKey(storeKey []byte) (endMs int64, key []byte, err error) {
	if len(storeKey) < 8 || storeKey[0]&0x80 != 0 {
		return 0, nil, fmt.Errorf("window store: %x is no key of a window: its first 8 bytes are not an end time", storeKey)
	}
	return int64(binary.BigEndian.Uint64(storeKey)), storeKey[8:], nil
}
