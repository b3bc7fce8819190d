//go:build race

package machine

const raceEnabled = true // the race detector makes everything ten times slower
