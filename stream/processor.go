package stream

// Processor is one task's code: what the typed operators compile to, and what a low-level task implements itself.
// Calls never overlap. One value serves one task from one restore to the next: after a failed transaction it is thrown
// away, with everything it keeps outside its stores, and a new one is made.
//
// An error of OnRecord is handled by the input's Policy; whatever the call emitted, wrote to sinks or to stores is
// taken back first. An error of OnWatermark or OnEnd stops the job. A panic counts as an error.
type Processor interface {
	// OnRecord processes one record. It may set m.TimestampMs to the record's event time.
	OnRecord(ctx Context, m *Message) error
	// OnWatermark says that every later record has a time of at least watermarkMs; it never goes back. The first call
	// after a restore repeats the watermark of the checkpoint, so that due work goes on. When ctx.Room is used up it
	// returns done = false and is called again, with the same watermark, in a later transaction; no record comes in
	// between, and the watermark is forwarded downstream only after done.
	OnWatermark(ctx Context, watermarkMs int64) (done bool, err error)
	// OnEnd says that all inputs have ended: every open result is due. It is chunked like OnWatermark and, once it has
	// said done in a committed transaction, never called again.
	OnEnd(ctx Context) (done bool, err error)
}

// Context is what a processor may touch during a call. It must not be kept after it.
type Context interface {
	Task() TaskInfo
	// Store returns the task's part of a store of the stage. An unknown name is a bug of the caller and panics.
	Store(name string) Store
	// Emit sends a record to output number output of Stage.Outputs.
	Emit(output int, e Emission)
	// WriteSink sends a record to sink number sink of Stage.Sinks. The context sets r.RowSequence.
	WriteSink(sink int, r SinkRecord)
	// CountLate counts one record that came after its window had closed.
	CountLate()
	// Room is how many more results this call should emit. OnRecord need not look at it.
	Room() int
}

// TaskInfo names a task.
type TaskInfo struct {
	Job    string
	Run    string
	Stage  string
	Number int // also the partition it reads of every input
}

// Name is "<stage>-<number>", stable over restarts and owners.
func (t TaskInfo) Name() string { return TaskName(t.Stage, t.Number) }

// Store is one task's part of a keyed store. Reads see the task's own uncommitted writes. Keys are ordered as bytes.
// An error means that the store is damaged and stops the job, whatever the policy.
type Store interface {
	// Get returns the value of key. The caller must not change it.
	Get(key []byte) (value []byte, ok bool, err error)
	// Put and Delete keep no reference to key; value belongs to the store from the call on and is not nil.
	Put(key, value []byte) error
	Delete(key []byte) error
	// Range calls f for every entry with from <= key < to in ascending order until it returns false. A nil to has no
	// end. f must not keep or change the bytes, nor call the store.
	Range(from, to []byte, f func(key, value []byte) bool) error
}
