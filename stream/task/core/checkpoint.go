package core

// Counters count records of a task over its whole life, exactly once: they are part of its checkpoint.
type Counters struct {
	Records      int64 `json:"records"`
	Skipped      int64 `json:"skipped,omitempty"`
	DeadLettered int64 `json:"deadLettered,omitempty"`
	Late         int64 `json:"late,omitempty"`
	Emitted      int64 `json:"emitted,omitempty"`
}
