package progress

import "github.com/strandline-io/strandline/internal/mutant"

// Source is the progress of one source partition: its watermark follows the event times of its records, and silence
// makes it idle. Only a source becomes idle by silence, and only while successful fetches show that there is nothing to
// read: behind an open transaction or an outage silence says nothing.
type Source struct {
	disorderMs    int64
	idleTimeoutMs int64 // 0: never idle
	state         State
	// While quiet, every fetch since quietSinceMs found the cursor at the last stable offset and at the high watermark;
	// lastQuietMs is the newest of them.
	quiet        bool
	quietSinceMs int64
	lastQuietMs  int64
}

// NewSource returns the progress of a partition before its first record. Records may lie disorderMs behind the newest.
func NewSource(disorderMs, idleTimeoutMs int64) *Source {
	return &Source{disorderMs: disorderMs, idleTimeoutMs: idleTimeoutMs, state: State{WatermarkMs: None}}
}

// RestoreSource returns the progress of a partition as a checkpoint holds it. The time of silence begins anew.
func RestoreSource(s State, disorderMs, idleTimeoutMs int64) *Source {
	return &Source{disorderMs: disorderMs, idleTimeoutMs: idleTimeoutMs, state: s}
}

// State returns what the partition says now.
func (s *Source) State() State { return s.state }

// Observe takes the event time of a record that was processed, 0 or more. It reports whether State changed.
func (s *Source) Observe(timeMs int64) (changed bool) {
	old := s.state
	s.state.Idle = false
	if w := timeMs - s.disorderMs; w > s.state.WatermarkMs {
		s.state.WatermarkMs = w
	}
	return s.state != old
}

// Fetched takes the outcome of a successful fetch after its records were processed. It reports whether State changed:
// the input is idle once such fetches, none more than the timeout apart, have found nothing for the timeout. Waking up
// needs a record.
func (s *Source) Fetched(nowMs int64, records int, cursor, lastStableOffset, highWatermark int64) (changed bool) {
	if mutant.On("idle declared below the high watermark") {
		highWatermark = cursor
	}
	if records > 0 || cursor != lastStableOffset || cursor != highWatermark {
		s.quiet = false
		return false
	}
	if !s.quiet || nowMs-s.lastQuietMs > s.idleTimeoutMs {
		s.quiet, s.quietSinceMs = true, nowMs
	}
	s.lastQuietMs = nowMs
	if s.idleTimeoutMs == 0 || s.state.Idle || s.state.Ended || nowMs-s.quietSinceMs < s.idleTimeoutMs {
		return false
	}
	s.state.Idle = true
	return true
}

// Failed says that a fetch failed: the silence before it is no proof any more.
func (s *Source) Failed() { s.quiet = false }

// End says that the input is read to its end. It reports whether that is new.
func (s *Source) End() (changed bool) {
	changed = !s.state.Ended
	s.state.Ended, s.state.Idle = true, false
	return changed
}
