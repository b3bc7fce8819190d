package streamtest

import "github.com/tidwall/btree"

// memStore is the committed content of one task's store.
type memStore struct{ m btree.Map[string, []byte] }

func (s *memStore) set(key string, value []byte) {
	if value == nil {
		s.m.Delete(key)
		return
	}
	s.m.Set(key, value)
}

func (s *memStore) Get(key []byte) ([]byte, bool, error) {
	value, ok := s.m.Get(string(key))
	return value, ok, nil
}

func (s *memStore) Range(from, to []byte, f func(key, value []byte) bool) error {
	s.m.Ascend(string(from), func(key string, value []byte) bool {
		return (to == nil || key < string(to)) && f([]byte(key), value)
	})
	return nil
}
