//go:build mutants

// Package mutant switches defects on by name, for the tests that prove that the simulation finds them.
package mutant

var on string

// Set switches one defect on, and all others off; "" is none.
func Set(name string) { on = name }

// On reports whether the defect is switched on.
func On(name string) bool { return on == name }
