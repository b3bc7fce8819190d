package progress

import (
	"fmt"
	"maps"
	"slices"
)

// BookCheckpoint is a book as JSON inside a task's checkpoint: the EndOfStreamCheckpoint and WatermarkCheckpoint of
// Samza's control-message design, with partition, run and last emission. See docs/formats/checkpoint.md.
type BookCheckpoint struct {
	Partition   int                   `json:"partition"`
	Run         int64                 `json:"run"`
	EndOfStream EndOfStreamCheckpoint `json:"endOfStream"`
	Watermark   WatermarkCheckpoint   `json:"watermark"`
}

// EndOfStreamCheckpoint names the upstream tasks that have ended.
type EndOfStreamCheckpoint struct {
	StreamID   string   `json:"streamId"`
	TotalTasks int      `json:"totalTasks"`
	Tasks      []string `json:"tasks"`
}

// WatermarkCheckpoint holds the newest watermark of each upstream task that has spoken of one.
type WatermarkCheckpoint struct {
	StreamID         string           `json:"streamId"`
	TotalTasks       int              `json:"totalTasks"`
	TasksToEventTime map[string]int64 `json:"tasksToEventTime"`
	// IdleTasks are idle now.
	IdleTasks []string `json:"idleTasks,omitempty"`
	// LastEmission is the watermark given out last; absent before the first.
	LastEmission *int64 `json:"timestampOfLastEmission,omitempty"`
}

// Checkpoint returns what Restore needs.
func (b *Book) Checkpoint() BookCheckpoint {
	c := BookCheckpoint{Partition: b.partition, Run: b.run}
	c.EndOfStream = EndOfStreamCheckpoint{StreamID: b.stream, TotalTasks: b.expected, Tasks: []string{}}
	c.Watermark = WatermarkCheckpoint{StreamID: b.stream, TotalTasks: b.expected, TasksToEventTime: map[string]int64{}}
	for _, t := range b.tasks {
		switch {
		case t.ended:
			c.EndOfStream.Tasks = append(c.EndOfStream.Tasks, t.name)
			continue
		case t.place < 0:
			c.Watermark.IdleTasks = append(c.Watermark.IdleTasks, t.name)
		}
		if t.watermarkMs != None {
			c.Watermark.TasksToEventTime[t.name] = t.watermarkMs
		}
	}
	slices.Sort(c.EndOfStream.Tasks)
	slices.Sort(c.Watermark.IdleTasks)
	if b.state.WatermarkMs != None {
		last := b.state.WatermarkMs
		c.Watermark.LastEmission = &last
	}
	return c
}

// RestoreBook rebuilds a book, for the same stream, partition and number of upstream tasks, and evaluates it at once:
// the message that completed it may lie before the restored offset. A checkpoint of an older run is worth nothing and
// gives a new book.
func RestoreBook(c BookCheckpoint, stream string, partition int, run int64, expected int) (*Book, error) {
	b := NewBook(stream, partition, run, expected)
	if c.Run < run {
		return b, nil
	}
	if c.Run > run {
		return nil, &RunError{stream, partition, run, c.Run}
	}
	if c.EndOfStream.StreamID != stream || c.Watermark.StreamID != stream || c.Partition != partition {
		return nil, fmt.Errorf("checkpoint of stream %q partition %d where %q partition %d is expected: the topology has changed; reset the job or run it under another name", c.Watermark.StreamID, c.Partition, stream, partition)
	}
	total := c.Watermark.TotalTasks
	if total != c.EndOfStream.TotalTasks || expected != 0 && total != expected || total < 0 || total > MaxTaskCount {
		return nil, &TaskCountError{Stream: stream, Partition: partition, Run: run, Have: expected, Got: total, Task: "(checkpoint)"}
	}
	b.expected = total
	for _, task := range slices.Sorted(maps.Keys(c.Watermark.TasksToEventTime)) {
		number := b.add(task)
		b.tasks[number].watermarkMs = c.Watermark.TasksToEventTime[task]
		b.enter(number)
	}
	for _, task := range c.Watermark.IdleTasks {
		b.leave(b.known(task))
	}
	for _, task := range c.EndOfStream.Tasks {
		b.update(b.known(task), Control{Kind: KindEndOfStream})
	}
	if len(b.tasks) > total && total > 0 {
		return nil, &TaskCountError{Stream: stream, Partition: partition, Run: run, Have: total, Got: len(b.tasks), Task: "(checkpoint)"}
	}
	if c.Watermark.LastEmission != nil {
		b.state.WatermarkMs = *c.Watermark.LastEmission
	}
	b.evaluate()
	return b, nil
}

func (b *Book) known(task string) int32 {
	if number, ok := b.numbers[task]; ok {
		return number
	}
	return b.add(task)
}
