//go:build !race

package streamtest

const seedShare = 1
