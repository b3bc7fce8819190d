package record

import "math"

// Sequences live in 0..2147483647 and wrap to 0 (kafka-eos.md A.4, KIP-98 "Producer epoch and sequence").

// NextSequence is what must follow the sequence last. NextSequence(NoSequence) is 0.
func NextSequence(last int32) int32 {
	if last == math.MaxInt32 {
		return 0
	}
	return last + 1
}

// LastSequence is the sequence of the last of count records of which the first has sequence first. count is at
// least 1.
func LastSequence(first, count int32) int32 { return addSequence(first, count-1) }

// FirstSequence is the sequence of the first of count records of which the last has sequence last. count is at
// least 1.
func FirstSequence(last, count int32) int32 {
	delta := count - 1
	if last < delta {
		return math.MaxInt32 - (delta - last) + 1
	}
	return last - delta
}

func addSequence(first, delta int32) int32 {
	if first > math.MaxInt32-delta {
		return delta - (math.MaxInt32 - first) - 1
	}
	return first + delta
}
