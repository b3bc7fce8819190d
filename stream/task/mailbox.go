package task

import "sync"

// mailbox carries messages to the loop of a worker. Posting never waits; what may wait in it is bounded by what the
// loop itself started, one answer per call, and by one newest checkpoint per task of the job.
type mailbox struct {
	signal chan struct{}

	mu    sync.Mutex
	queue []any
	seen  map[string][]byte // newest checkpoints not yet taken, by key
	keys  []string          // their order of arrival
}

func newMailbox() *mailbox {
	return &mailbox{signal: make(chan struct{}, 1), seen: make(map[string][]byte)}
}

func (m *mailbox) post(msg any) {
	m.mu.Lock()
	m.queue = append(m.queue, msg)
	m.mu.Unlock()
	m.wake()
}

// postCheckpoint replaces an older one of the same key that was not taken yet.
func (m *mailbox) postCheckpoint(key string, value []byte) {
	m.mu.Lock()
	if _, ok := m.seen[key]; !ok {
		m.keys = append(m.keys, key)
	}
	m.seen[key] = value
	m.mu.Unlock()
	m.wake()
}

func (m *mailbox) wake() {
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// take gives the next message; answers come before checkpoints.
func (m *mailbox) take() (any, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) > 0 {
		msg := m.queue[0]
		m.queue[0] = nil
		m.queue = m.queue[1:]
		return msg, true
	}
	if len(m.keys) > 0 {
		key := m.keys[0]
		m.keys = m.keys[1:]
		value := m.seen[key]
		delete(m.seen, key)
		return checkpointMsg{key, value}, true
	}
	return nil, false
}

// checkpointMsg is one committed record of the checkpoint topic.
type checkpointMsg struct {
	key   string
	value []byte
}
