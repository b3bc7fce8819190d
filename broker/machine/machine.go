package machine

// Machine is the broker's state. Its methods must not overlap.
type Machine struct {
	cfg     Config
	lastNow Now
	hash    uint64
}

// New returns an empty machine.
func New(cfg Config) *Machine { return &Machine{cfg: cfg.orDefaults()} }

// Restore returns the machine that AppendSnapshot wrote. Its Hash and its later behaviour are those of a machine that
// replayed everything up to the snapshot. Damaged bytes give an error, never a panic.
func Restore(cfg Config, data []byte) (*Machine, error) { return New(cfg), nil }

// Step decides op, moves the state at once, and adds to out what must be journaled, answered and published, in this
// order. It keeps no reference to op's bodies, except that batches go out unchanged but for their patched places.
func (m *Machine) Step(op *Op, out *Out) {}

// Replay applies one journaled unit: its Meta and the first 61 bytes of each of its batches, in unit order. An error
// means that the bytes are damaged or do not follow from the state; the machine must not be used afterwards.
func (m *Machine) Replay(meta []byte, headers [][]byte) error { return nil }

// NextTimer returns the engine time at which a Tick has something to do.
func (m *Machine) NextTimer() (engineMs int64, ok bool) { return 0, false }

// AppendSnapshot appends the durable state to dst. Equal states give equal bytes.
func (m *Machine) AppendSnapshot(dst []byte) []byte { return dst }

// Hash sums up every applied record and what it did. It is equal in two machines that applied the same units.
func (m *Machine) Hash() uint64 { return m.hash }

// Views returns what may be seen of every partition, ascending by id.
func (m *Machine) Views() []View { return nil }

// Topics returns every topic, ascending by name.
func (m *Machine) Topics() []Topic { return nil }

// LastNow is the time of the last applied unit.
func (m *Machine) LastNow() Now { return m.lastNow }

// LeaderEpoch is the leader epoch of all partitions: the number of the last Incarnation, 0 before the first.
func (m *Machine) LeaderEpoch() int32 { return 0 }

// ShelvedLengths returns how far every partition's own files reach, ascending by id, without those that have none.
func (m *Machine) ShelvedLengths() []ShelvedLength { return nil }
