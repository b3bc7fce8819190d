//go:build mutants

package main

import (
	"flag"
	"fmt"
	"slices"

	"github.com/strandline-io/strandline/internal/mutant"
)

// switched is the defect that is switched on, or "".
var switched string

func init() {
	misnamed = func() error {
		if switched == "" || slices.Contains(mutant.Names, switched) {
			return nil
		}
		return fmt.Errorf("-mutant is %q, want one of the %d names in internal/mutant/names.go", switched, len(mutant.Names))
	}
	unasked = func() error {
		if switched == "" || mutant.Asked() {
			return nil
		}
		return fmt.Errorf("no code that ran has the defect %q: another -world, -blob, -cores or more seeds may", switched)
	}
	program = func() string {
		if switched == "" {
			return "go run ./internal/sim"
		}
		return fmt.Sprintf("go run -tags mutants ./internal/sim -mutant %q", switched)
	}
	flag.Func("mutant", "switch this defect on", func(name string) error {
		switched = name
		mutant.Set(name)
		return nil
	})
}
