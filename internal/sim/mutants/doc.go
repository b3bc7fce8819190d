// Package mutants proves that the simulation finds defects: each rule of the list is removed in turn, and a stated number
// of seeds must notice. The list is in mutants_test.go. Run it with
// go test -tags mutants ./internal/sim/mutants.
package mutants
