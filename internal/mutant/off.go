//go:build !mutants

// Package mutant switches defects on by name, for the tests that prove that the simulation finds them. Without the build
// tag mutants it is nothing: On is a constant false, and what hangs on it is not compiled.
package mutant

// On reports whether the defect is switched on: never, in this build.
func On(string) bool { return false }
