//go:build mutants

// Package mutant switches defects on by name, for the tests that prove that the simulation finds them.
package mutant

import "sync/atomic"

var (
	on    string
	asked atomic.Bool
)

// Set switches one defect on, and all others off; "" is none.
func Set(name string) {
	on = name
	asked.Store(false)
}

// Asked reports whether the code has asked for the defect that is switched on: a name that nobody knows is never asked for.
func Asked() bool { return asked.Load() }

// On reports whether the defect is switched on.
func On(name string) bool {
	if on != name {
		return false
	}
	if !asked.Load() {
		asked.Store(true)
	}
	return true
}
