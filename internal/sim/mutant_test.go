//go:build mutants

package main

import (
	"testing"

	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/internal/sim/world"
)

func TestMutantIsNamedInTheCommand(t *testing.T) {
	defer func() { switched = ""; mutant.Set("") }()
	switched = "no epoch bump"
	if err := misnamed(); err != nil {
		t.Error(err)
	}
	const want = `go run -tags mutants ./internal/sim -mutant "no epoch bump" -`
	if got := command(world.Options{Seed: 2}); got != want+"seed 2" {
		t.Errorf("got %s", got)
	}
	if got := coresCommand(2, 0); got != want+"cores -seed 2" {
		t.Errorf("got %s", got)
	}
	switched = "nope"
	if misnamed() == nil {
		t.Error("nope is a defect")
	}
}
