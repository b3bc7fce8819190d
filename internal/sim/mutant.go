//go:build mutants

package main

import (
	"flag"
	"fmt"

	"github.com/strandline-io/strandline/internal/mutant"
)

func init() {
	switched := ""
	unasked = func() error {
		if switched == "" || mutant.Asked() {
			return nil
		}
		return fmt.Errorf("no code that ran asked for the mutant %q; git grep -ho 'mutant.On(\"[^)]*)' shows the names", switched)
	}
	flag.Func("mutant", "switch this defect on", func(name string) error {
		switched = name
		mutant.Set(name)
		return nil
	})
}
