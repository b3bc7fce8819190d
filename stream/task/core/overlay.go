package core

import (
	"bytes"

	"github.com/tidwall/btree"
)

// overlay holds the writes of the open transaction above the committed content of a store. Dropping it is the abort.
type overlay struct {
	base   BaseStore
	writes *btree.Map[string, []byte] // nil value: deleted
	// undo holds, while a record is processed, what its writes replaced.
	undo    []undone
	undoing bool
}

type undone struct {
	key   string
	value []byte
	had   bool
}

func newOverlay(base BaseStore) *overlay {
	return &overlay{base: base, writes: &btree.Map[string, []byte]{}}
}

func (o *overlay) begin() { o.undo, o.undoing = o.undo[:0], true }

func (o *overlay) rollback() {
	for i := len(o.undo) - 1; i >= 0; i-- {
		if u := o.undo[i]; u.had {
			o.writes.Set(u.key, u.value)
		} else {
			o.writes.Delete(u.key)
		}
	}
	o.end()
}

func (o *overlay) end() { o.undo, o.undoing = o.undo[:0], false }

// list returns the writes, sorted by key.
func (o *overlay) list() []StoreWrite {
	if o.writes.Len() == 0 {
		return nil
	}
	out := make([]StoreWrite, 0, o.writes.Len())
	o.writes.Scan(func(key string, value []byte) bool {
		out = append(out, StoreWrite{[]byte(key), value})
		return true
	})
	return out
}

// clear forgets the writes: they are committed.
func (o *overlay) clear() { o.writes = &btree.Map[string, []byte]{} }

func (o *overlay) set(key, value []byte) {
	k := string(key)
	old, had := o.writes.Set(k, value)
	if o.undoing {
		o.undo = append(o.undo, undone{k, old, had})
	}
}

func (o *overlay) Get(key []byte) ([]byte, bool, error) {
	if value, ok := o.writes.Get(string(key)); ok {
		return value, value != nil, nil
	}
	return o.base.Get(key)
}

// Range merges both layers; where both have a key, the overlay's entry counts.
func (o *overlay) Range(from, to []byte, f func(key, value []byte) bool) error {
	it := o.writes.Iter()
	more := it.Seek(string(from))
	inside := func() bool { return more && (to == nil || it.Key() < string(to)) }
	stopped := false
	give := func() {
		if value := it.Value(); value != nil && !f([]byte(it.Key()), value) {
			stopped = true
		}
		more = it.Next()
	}
	err := o.base.Range(from, to, func(key, value []byte) bool {
		for inside() && !stopped && it.Key() < string(key) {
			give()
		}
		if stopped {
			return false
		}
		if inside() && bytes.Equal([]byte(it.Key()), key) {
			give()
			return !stopped
		}
		stopped = !f(key, value)
		return !stopped
	})
	for err == nil && inside() && !stopped {
		give()
	}
	return err
}
