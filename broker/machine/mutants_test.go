//go:build mutants

package machine

import (
	"slices"
	"testing"

	"github.com/strandline-io/strandline/internal/mutant"
)

// TestRulesSeeMutants removes rules of the transaction coordinator one by one: a script of the section that each belongs to
// must not go as before. (internal/sim/mutants has those that the simulation sees.)
func TestRulesSeeMutants(t *testing.T) {
	for name, rules := range map[string][]rule{
		"any producer may take over by name":                   b3,
		"late InitProducerId aborts":                           b3,
		"no epoch bump":                                        b3,
		"one bump over an open transaction":                    b3,
		"exhausted epoch goes on":                              b3,
		"retry of InitProducerId bumps again":                  b3,
		"lost answer over an open transaction not given again": b3,
		"another producer id may add":                          b4,
		"fenced id may add partitions":                         b4,
		"verification finds every partition":                   b4,
		"batch outside of its transaction accepted":            b6,
		"verification finds every group":                       b6,
		"offsets of aborted transactions kept":                 b6,
		"transactional offsets of anybody accepted":            b6,
		"last partition gets no marker":                        b9,
		"every partition restarts the timeout":                 b10,
		"ids never expire":                                     b10,
		"timed-out transaction not aborted":                    b10,
		"timeout does not fence":                               b10,
		"timeout of the first producer kept":                   b10,
		"open transaction forgotten at restart":                b10,
		"markers without the bump":                             b17,
		"retry over a new producer id refused":                 b17,
		"retry of EndTxn ends the next transaction":            b8,
		"EndTxn says yes to the other end":                     b7,
		"stale epoch may end":                                  b7,
		"late request taken for the next transaction's":        i1,
	} {
		t.Run(name, func(t *testing.T) {
			mutant.Set(name)
			defer mutant.Set("")
			if !slices.ContainsFunc(rules, func(r rule) bool { return fails(t, r) }) {
				t.Error("every script goes as if nothing were wrong")
			}
		})
	}
}

// fails runs a rule and reports whether the world, or the machine itself, finds fault with it.
func fails(t *testing.T, r rule) (failed bool) {
	quiet := &listener{TB: t}
	defer func() { failed = recover() != nil || quiet.failed }()
	newWorld(quiet, Config{}).script(r.script)
	return false
}

// listener is a test that notes that it fails, and goes on.
type listener struct {
	testing.TB
	failed bool
}

func (l *listener) Errorf(string, ...any) { l.failed = true }
func (l *listener) Fatalf(string, ...any) { panic("fatal") }
func (l *listener) Fatal(...any)          { panic("fatal") }
