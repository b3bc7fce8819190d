package protocol

import (
	"testing"

	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
)

func TestTokensEndWithTheirTasks(t *testing.T) {
	t.Parallel()
	o := NewTokens()
	a, b := core.Task{Stage: "s"}, core.Task{Stage: "s", Number: 1}
	first := o.Give(kafka.Membership{Generation: 1}, []core.Task{a, b})
	f := func(owned []core.Ownership, generation int32, want bool) {
		t.Helper()
		m, ok := o.Hold(owned)
		if ok != want || ok && m.Generation != generation {
			t.Errorf("hold is %v in generation %d", ok, m.Generation)
		}
	}
	f(first, 1, true)
	o.End([]core.Task{b})
	f(first, 1, false)
	f(first[:1], 1, true)
	second := o.Give(kafka.Membership{Generation: 2}, []core.Task{a, b})
	f(first[:1], 2, false) // the same task under another token is another ownership
	f(second, 2, true)
	o.EndAll()
	f(second, 2, false)
}
