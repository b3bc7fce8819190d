package bench

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets of at most 1/64 relative width, from a microsecond to hours. Methods must not
// overlap; each goroutine has its own and they are merged at the end.
type histogram struct {
	counts [histogramBuckets]uint64
	total  uint64
	maxUs  uint64
}

const (
	histogramSubBits = 6
	histogramBuckets = (64 - histogramSubBits) << histogramSubBits
)

func bucketOf(us uint64) int {
	if us < 1<<histogramSubBits {
		return int(us)
	}
	shift := bits.Len64(us) - histogramSubBits - 1
	return (shift+1)<<histogramSubBits + int(us>>shift) - 1<<histogramSubBits
}

// lowerBound is the smallest value of a bucket.
func lowerBound(bucket int) uint64 {
	if bucket < 1<<histogramSubBits {
		return uint64(bucket)
	}
	shift := bucket>>histogramSubBits - 1
	return (uint64(bucket&(1<<histogramSubBits-1)) + 1<<histogramSubBits) << shift
}

func (h *histogram) add(d time.Duration) {
	us := uint64(max(0, d.Microseconds()))
	h.counts[bucketOf(us)]++
	h.total++
	h.maxUs = max(h.maxUs, us)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
	h.maxUs = max(h.maxUs, o.maxUs)
}

// quantileMs is the value below which the share q of all durations lies.
func (h *histogram) quantileMs(q float64) float64 {
	if h.total == 0 {
		return 0
	}
	rank := uint64(q * float64(h.total))
	var seen uint64
	for i, n := range h.counts {
		seen += n
		if seen > rank {
			return float64(min(lowerBound(i+1)-1, h.maxUs)) / 1000
		}
	}
	return float64(h.maxUs) / 1000
}
