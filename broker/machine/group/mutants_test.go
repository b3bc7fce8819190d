//go:build mutants

package group

import (
	"os"
	"testing"

	"github.com/strandline-io/strandline/internal/mutant"
)

// TestScriptsSeeMutants removes rules of the consumer protocol one by one: the script that is about each must not go as
// before. (internal/sim/mutants has those that the simulation sees.)
func TestScriptsSeeMutants(t *testing.T) {
	for name, file := range map[string]string{
		"partitions given on before they are revoked": "d3_join.txt",
		"member epoch not checked":                    "d3_join.txt",
		"previous member epoch outlives a step":       "d3_join.txt",
		"instance taken before it was released":       "d3_static.txt",
		"outdated assignment taken":                   "d3_static.txt",
		"outdated match taken":                        "d3_topics.txt",
		"commit of a stale member epoch accepted":     "d4_consumers.txt",
		"upgrade forgets what classic members have":   "d3_upgrade.txt",
		"upgrade forgets what is being given up":      "d3_upgrade.txt",
		"generation of a classic member not checked":  "d3_upgrade.txt",
		"downgrade forgets what is to be given up":    "d3_downgrade.txt",
		"unsubscribed topics kept until the target":   "d3_topics.txt",
		"classic member need not join again":          "d3_upgrade.txt",
	} {
		t.Run(name, func(t *testing.T) {
			script, err := os.ReadFile("testdata/" + file)
			if err != nil {
				t.Fatal(err)
			}
			mutant.Set(name)
			defer mutant.Set("")
			if got := runScript(t, string(script)); got == string(script) {
				t.Errorf("%s goes as if nothing were wrong", file)
			}
		})
	}
}
