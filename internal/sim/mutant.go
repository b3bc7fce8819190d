//go:build mutants

package main

import (
	"flag"

	"github.com/strandline-io/strandline/internal/mutant"
)

func init() {
	flag.Func("mutant", "switch this defect on", func(name string) error {
		mutant.Set(name)
		return nil
	})
}
