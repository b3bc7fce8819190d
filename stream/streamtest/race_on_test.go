//go:build race

package streamtest

// seedShare is how many times fewer seeds run under the race detector, which is slow and finds nothing in one goroutine.
const seedShare = 8
