package edge

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/mutant"
)

// Kafka's words for fetch sessions (KIP-227). A request with one of these epochs names all its partitions and ends the
// session that it names; one with another epoch tells what has changed since the one before.
const (
	sessionNone         = 0  // the id of no session
	sessionInitialEpoch = 0  // begins a session
	sessionFinalEpoch   = -1 // wants none
	sessionsVersion     = 7  // the first version that knows them
)

const (
	// sessionIdle is how long a session must not have been used, or must have existed, before another one may take its
	// place, as in Apache Kafka.
	sessionIdle = 2 * time.Minute
	// sessionPartBytes is what a partition of a session takes, its topic's name apart.
	sessionPartBytes = 384
)

// sessions are the fetch sessions of all connections. They are volatile: a client whose session is gone is told so and
// begins a new one. It may come back on another connection.
type sessions struct {
	limit    int
	maxBytes int64
	now      func() time.Time

	mu    sync.Mutex
	ids   *rand.ChaCha8 // unlike a counter it does not give a client of before a restart the session of another one
	byID  map[int32]*session
	bytes int64 // of sessions that are kept, and of those in use although they are not kept any more
}

func newSessions(limit int, maxBytes int64, seed [32]byte, now func() time.Time) *sessions {
	return &sessions{
		limit: limit, maxBytes: maxBytes, now: now,
		ids: rand.NewChaCha8(seed), byID: make(map[int32]*session),
	}
}

// session is what one client reads, from request to request. While inUse is set, its partitions belong to the Fetcher
// that has set it; the rest is guarded by sessions.mu.
type session struct {
	id       int32
	epoch    int32 // of the next request
	topicIDs bool
	inUse    bool
	removed  bool
	size     int   // partitions
	bytes    int64 // of the partitions
	created  time.Time
	used     time.Time

	parts []*fetchPart // in the order of answering
	index map[partKey]*fetchPart
}

// partKey is how requests name a partition: by the topic's name or by its id.
type partKey struct {
	name  string
	id    [16]byte
	index int32
}

// close forgets the session with this id, if there is one.
func (all *sessions) close(id int32) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if s := all.byID[id]; s != nil {
		all.remove(s)
	}
}

// remove forgets a session; mu is held. What it holds counts until nobody uses it.
func (all *sessions) remove(s *session) {
	delete(all.byID, s.id)
	s.removed = true
	if !s.inUse {
		all.bytes -= s.bytes
	}
}

// continueAt takes the session for the request with this epoch, or returns a code. One request at a time uses a session:
// a client asks again only when it was answered.
func (all *sessions) continueAt(id, epoch int32, topicIDs bool) (*session, int16) {
	all.mu.Lock()
	defer all.mu.Unlock()
	s := all.byID[id]
	switch {
	case s == nil:
		return nil, kerr.FetchSessionIDNotFound.Code
	case s.epoch != epoch, s.inUse:
		return nil, kerr.InvalidFetchSessionEpoch.Code
	case s.topicIDs != topicIDs:
		return nil, kerr.FetchSessionTopicIDError.Code
	}
	s.inUse, s.used = true, all.now()
	if s.epoch++; s.epoch < 0 {
		s.epoch = 1
	}
	return s, 0
}

// rest ends the use of a session.
func (all *sessions) rest(s *session) {
	all.mu.Lock()
	defer all.mu.Unlock()
	s.inUse = false
	if s.removed {
		all.bytes -= s.bytes
	}
}

// begin keeps a session for parts, which it copies, and takes it. It returns nil if there is no room.
func (all *sessions) begin(parts []*fetchPart, topicIDs bool) *session {
	s := &session{
		epoch: 1, topicIDs: topicIDs, inUse: true, size: len(parts), bytes: bytesOf(parts),
		parts: make([]*fetchPart, 0, len(parts)), index: make(map[partKey]*fetchPart, len(parts)),
	}
	if !all.admit(s) {
		return nil
	}
	name, cloned := "", ""
	for _, p := range parts {
		if p.topic != name {
			name, cloned = p.topic, strings.Clone(p.topic) // the request's memory is not kept for the sake of a name
		}
		kept := &fetchPart{topic: cloned, topicID: p.topicID, ask: p.ask, part: p.part, known: p.known}
		kept.told.note(p)
		if twin := s.index[kept.key()]; twin != nil {
			*twin = *kept
			continue
		}
		s.index[kept.key()] = kept
		s.parts = append(s.parts, kept)
	}
	return s
}

func bytesOf(parts []*fetchPart) (n int64) {
	name := ""
	for _, p := range parts {
		n += sessionPartBytes
		if p.topic != name {
			name = p.topic
			n += int64(len(name))
		}
	}
	return n
}

// admit gives s an id if there is room for it, or if there are sessions that it may replace.
func (all *sessions) admit(s *session) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	s.created = all.now()
	s.used = s.created
	for len(all.byID) >= all.limit || all.bytes+s.bytes > all.maxBytes {
		victim := all.victim(s.size, s.created)
		if victim == nil || s.bytes > all.maxBytes {
			return false
		}
		all.remove(victim)
	}
	for s.id == sessionNone || all.byID[s.id] != nil {
		s.id = int32(all.ids.Uint64() >> 33) // not negative
	}
	all.byID[s.id] = s
	all.bytes += s.bytes
	return true
}

// victim is the session that a new one of size partitions replaces: the one that was not used for longest, if that is
// long, else the smallest of those that have existed for a while, if it is smaller than the new one.
func (all *sessions) victim(size int, now time.Time) *session {
	var oldest, smallest *session
	for _, s := range all.byID {
		if oldest == nil || s.used.Before(oldest.used) || s.used.Equal(oldest.used) && s.id < oldest.id {
			oldest = s
		}
		if now.Sub(s.created) <= sessionIdle {
			continue
		}
		if smallest == nil || s.size < smallest.size || s.size == smallest.size && s.id < smallest.id {
			smallest = s
		}
	}
	switch {
	case oldest != nil && now.Sub(oldest.used) > sessionIdle:
		return oldest
	case smallest != nil && smallest.size < size:
		return smallest
	}
	return nil
}

// update applies what an incremental request tells: partitions that are new or whose position has changed, and those
// that are not wanted any more. It reports false if the session has become too large to be kept.
func (all *sessions) update(s *session, e *Edge, req *kmsg.FetchRequest) bool {
	growth := int64(0)
	for i := range req.Topics {
		t := &req.Topics[i]
		topic := ""
		for k := range t.Partitions {
			p := &t.Partitions[k]
			if old := s.index[keyOf(t.Topic, t.TopicID, p.Partition, s.topicIDs)]; old != nil {
				if !mutant.On("fetch session keeps a position") {
					old.ask = askOf(p)
				}
				continue
			}
			if topic == "" && !s.topicIDs {
				topic = strings.Clone(t.Topic)
				growth += int64(len(topic))
			}
			added := &fetchPart{topic: topic, topicID: t.TopicID, ask: askOf(p), told: toldNothing}
			growth += sessionPartBytes
			s.index[added.key()] = added
			s.parts = append(s.parts, added)
		}
	}
	forgotten := 0
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, index := range t.Partitions {
			key := keyOf(t.Topic, t.TopicID, index, s.topicIDs)
			if p := s.index[key]; p != nil {
				delete(s.index, key)
				p.forgotten = true
				forgotten++
			}
		}
	}
	if forgotten > 0 {
		growth -= int64(forgotten) * sessionPartBytes
		s.parts = compacted(s.parts)
	}
	for _, p := range s.parts {
		p.find(e, s.topicIDs)
	}
	return all.grow(s, growth)
}

// grow notes what a session takes after an update. It reports false if that is too much: then the session is gone.
func (all *sessions) grow(s *session, bytes int64) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	s.size = len(s.parts)
	s.bytes += bytes
	all.bytes += bytes
	if s.removed || bytes <= 0 || all.bytes <= all.maxBytes {
		return true
	}
	all.remove(s)
	return false
}

func compacted(parts []*fetchPart) []*fetchPart {
	kept := parts[:0]
	for _, p := range parts {
		if !p.forgotten {
			kept = append(kept, p)
		}
	}
	clear(parts[len(kept):])
	return kept
}

// answered moves the partitions that gave records behind the others, so that all get their turn when answers are full.
func (s *session) answered() {
	var gave []*fetchPart
	kept := s.parts[:0]
	for _, p := range s.parts {
		if len(p.records) > 0 {
			gave = append(gave, p)
		} else {
			kept = append(kept, p)
		}
	}
	s.parts = append(kept, gave...)
}

func keyOf(name string, id [16]byte, index int32, byID bool) partKey {
	if byID {
		return partKey{id: id, index: index}
	}
	return partKey{name: name, index: index}
}
