//go:build race

package producer

const raceEnabled = true // the race detector makes everything ten times slower
