package progress

import (
	"fmt"

	"github.com/strandline-io/strandline/internal/mutant"
)

// State is what a partition, an input or a task says to the next one downstream. A task is ended, idle or active.
type State struct {
	// WatermarkMs promises that every later record has at least this time; None before the first. It never falls.
	WatermarkMs int64
	Idle        bool
	Ended       bool
}

// Combine returns the state of a task from the states of its inputs. The watermark is the lowest of the active inputs;
// None if one of them has none yet, or if none is active. The task is idle if all inputs that have not ended are, and
// ended if all have. The caller keeps the result from falling.
func Combine(inputs []State) State {
	out := State{WatermarkMs: None, Ended: true}
	active, idle := 0, 0
	for _, in := range inputs {
		switch {
		case in.Ended:
			continue
		case in.Idle:
			idle++
		case active == 0:
			out.WatermarkMs = in.WatermarkMs
			active++
		default:
			out.WatermarkMs = min(out.WatermarkMs, in.WatermarkMs)
		}
		out.Ended = false
	}
	out.Idle = active == 0 && idle > 0
	return out
}

// Book is the bookkeeping of one partition of an intermediate stream: who said what. Its cost per message is the
// logarithm of the number of upstream tasks.
type Book struct {
	stream    string
	partition int
	run       int64
	expected  int // 0 until known

	numbers map[string]int32 // task name → index in tasks
	tasks   []upstream
	active  []int32 // heap of the active tasks, lowest watermark first
	ended   int
	state   State
}

type upstream struct {
	name        string
	watermarkMs int64
	ended       bool
	place       int32 // in the heap, -1 if not there: idle or ended
}

// NewBook returns the book of a partition before any message. expected is the number of upstream tasks, 0 if the first
// message tells; run is the current run.
func NewBook(stream string, partition int, run int64, expected int) *Book {
	return &Book{
		stream: stream, partition: partition, run: run, expected: expected,
		numbers: map[string]int32{}, state: State{WatermarkMs: None},
	}
}

// TaskCountError says that the number of upstream tasks changed within a run: what was counted so far is worth nothing.
type TaskCountError struct {
	Stream    string
	Partition int
	Run       int64
	Have, Got int
	Task      string
}

func (e *TaskCountError) Error() string {
	return fmt.Sprintf("stream %s partition %d: task %s says that %d tasks write the stream in run %d, expected are %d: the number of upstream tasks must not change within a run; reset the job, which begins a new run", e.Stream, e.Partition, e.Task, e.Got, e.Run, e.Have)
}

// RunError says that a message belongs to a newer run than this program was started for.
type RunError struct {
	Stream    string
	Partition int
	Have, Got int64
}

func (e *RunError) Error() string {
	return fmt.Sprintf("stream %s partition %d: a message of run %d in run %d: the job was reset while this process was running; start it again", e.Stream, e.Partition, e.Got, e.Have)
}

// State returns what the partition says now.
func (b *Book) State() State { return b.state }

// Apply takes one control message and returns whether State changed. A message of an older run, of a task that has
// ended, or with a lower watermark changes nothing.
func (b *Book) Apply(c Control) (changed bool, err error) {
	if c.Run != 0 && c.Run < b.run {
		return false, nil
	}
	if c.Run > b.run {
		return false, &RunError{b.stream, b.partition, b.run, c.Run}
	}
	if c.Kind == KindEndOfStream && c.Stream != "" && c.Stream != b.stream {
		return false, fmt.Errorf("%w: stream %s partition %d holds an end of stream %.100q: another job writes this topic", ErrCorrupt, b.stream, b.partition, c.Stream)
	}
	if b.expected == 0 {
		b.expected = c.TaskCount
	}
	if c.TaskCount != 0 && c.TaskCount != b.expected {
		return false, b.countError(c, c.TaskCount)
	}
	number, ok := b.numbers[c.Task]
	spoken := len(b.tasks)
	if !ok {
		spoken++
	}
	if b.expected != 0 && spoken > b.expected { // also when more had spoken before one told the count
		return false, b.countError(c, spoken)
	}
	if !ok {
		number = b.add(c.Task)
	}
	b.update(number, c)
	return b.evaluate(), nil
}

func (b *Book) countError(c Control, got int) error {
	return &TaskCountError{b.stream, b.partition, b.run, b.expected, got, c.Task}
}

func (b *Book) add(task string) int32 {
	number := int32(len(b.tasks))
	b.numbers[task] = number
	b.tasks = append(b.tasks, upstream{name: task, watermarkMs: None, place: -1})
	return number
}

func (b *Book) update(number int32, c Control) {
	t := &b.tasks[number]
	switch {
	case t.ended && !mutant.On("duplicates not latched"):
	case c.Kind == KindEndOfStream:
		t.ended = true
		b.ended++
		if !mutant.On("watermark from an ended task kept") {
			b.leave(number)
		}
	default:
		if c.TimestampMs > t.watermarkMs {
			t.watermarkMs = c.TimestampMs
		}
		if c.Idle {
			b.leave(number)
		} else {
			b.enter(number)
		}
	}
}

// evaluate computes State from the counts and the top of the heap.
func (b *Book) evaluate() (changed bool) {
	if b.expected == 0 || len(b.tasks) < b.expected {
		return false
	}
	s := b.state
	switch {
	case b.ended == b.expected, b.ended > 0 && mutant.On("end of stream before the last record"):
		s.Ended, s.Idle = true, false
	case len(b.active) == 0:
		s.Idle = true
	default:
		s.Idle = false
		s.WatermarkMs = max(s.WatermarkMs, b.tasks[b.active[0]].watermarkMs)
		if mutant.On("watermark without the minimum") {
			for _, n := range b.active {
				s.WatermarkMs = max(s.WatermarkMs, b.tasks[n].watermarkMs)
			}
		}
	}
	changed = s != b.state
	b.state = s
	return changed
}

// Expected is the number of upstream tasks, 0 until known.
func (b *Book) Expected() int { return b.expected }
