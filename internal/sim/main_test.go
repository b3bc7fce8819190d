package main

import (
	"strings"
	"testing"

	"github.com/strandline-io/strandline/internal/sim/world"
)

func TestSpan(t *testing.T) {
	if from, to, err := span("9-9"); from != 9 || to != 9 || err != nil {
		t.Errorf("9-9 is %d-%d, %v", from, to, err)
	}
	for _, s := range []string{"", "7", "5-3", "1-2x", "-1-2", "1-", "0-18446744073709551615"} {
		if from, to, err := span(s); err == nil {
			t.Errorf("%q is %d-%d", s, from, to)
		}
	}
}

func TestUnknownNamesAreRefused(t *testing.T) {
	whole := world.Run(world.Options{Seed: 2})
	o := world.Options{Seed: 2, WithoutClients: whole.Clients[:1], WithoutFaults: whole.Faults[:1]}
	if err := unknown(o, true); err != nil {
		t.Error(err)
	}
	o.WithoutClients, o.WithoutFaults = []string{"nobody"}, []int{9999}
	if err := unknown(o, true); err == nil || !strings.Contains(err.Error(), "nobody, 9999;") {
		t.Error(err)
	}
}
