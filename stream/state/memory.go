package state

import (
	"bytes"
	"fmt"

	"github.com/tidwall/btree"
)

// entryOverheadBytes is what an entry costs in the tree besides its bytes.
const entryOverheadBytes = 64

// Memory is a Store in memory. A restart rebuilds it from the changelog.
type Memory struct {
	memoryReader
	name     string
	maxBytes int64
	size     int64
	stamp    Stamp
}

type entry struct{ key, value []byte }

type memoryReader struct{ tree *btree.BTreeG[entry] }

// NewMemory makes an empty store. name is for messages; maxBytes 0 means DefaultMaxBytes.
func NewMemory(name string, maxBytes int64) *Memory {
	if maxBytes == 0 {
		maxBytes = DefaultMaxBytes
	}
	return &Memory{name: name, maxBytes: maxBytes, memoryReader: memoryReader{newTree()}}
}

func newTree() *btree.BTreeG[entry] {
	return btree.NewBTreeGOptions(func(a, b entry) bool { return bytes.Compare(a.key, b.key) < 0 }, btree.Options{NoLocks: true})
}

// Get implements Reader.
func (r memoryReader) Get(key []byte) ([]byte, bool, error) {
	e, ok := r.tree.Get(entry{key: key})
	return e.value, ok, nil
}

// Range implements Reader.
func (r memoryReader) Range(from, to []byte, f func(key, value []byte) bool) error {
	r.tree.Ascend(entry{key: from}, func(e entry) bool {
		if to != nil && bytes.Compare(e.key, to) >= 0 {
			return false
		}
		return f(e.key, e.value)
	})
	return nil
}

// Len implements Reader.
func (r memoryReader) Len() int { return r.tree.Len() }

// Apply implements Store.
func (m *Memory) Apply(writes []Write, stamp Stamp) error {
	if stamp.TopicID == m.stamp.TopicID && stamp.NextOffset < m.stamp.NextOffset {
		return fmt.Errorf("state: store %s reflects its changelog up to offset %d; writes up to %d would take it back",
			m.name, m.stamp.NextOffset, stamp.NextOffset)
	}
	for _, w := range writes {
		if w.Value == nil {
			if old, ok := m.tree.Delete(entry{key: w.Key}); ok {
				m.size -= sizeOf(old)
			}
			continue
		}
		e := entry{w.Key, w.Value}
		if old, replaced := m.tree.Set(e); replaced {
			m.size -= sizeOf(old)
		}
		m.size += sizeOf(e)
	}
	m.stamp = stamp
	return nil
}

func sizeOf(e entry) int64 { return int64(len(e.key)+len(e.value)) + entryOverheadBytes }

// Stamp implements Store.
func (m *Memory) Stamp() Stamp { return m.stamp }

// CheckRoom implements Store. It counts replaced entries as additional, so it may refuse a little early.
func (m *Memory) CheckRoom(addBytes int64) error {
	if m.size+addBytes > m.maxBytes {
		return &FullError{Store: m.name, SizeBytes: m.size, AddBytes: addBytes, MaxBytes: m.maxBytes}
	}
	return nil
}

// Snapshot implements Store. The tree is shared until one side writes.
func (m *Memory) Snapshot() Reader { return memoryReader{m.tree.Copy()} }

// SizeBytes implements Store.
func (m *Memory) SizeBytes() int64 { return m.size }

// Close implements Store.
func (m *Memory) Close() error {
	m.tree, m.size, m.stamp = newTree(), 0, Stamp{}
	return nil
}
