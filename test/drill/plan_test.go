//go:build unix

package main

import (
	"testing"

	"github.com/strandline-io/strandline/internal/failpoint"
)

// TestEveryPointIsASubject: in 60 rounds each failpoint that can be passed is a subject, and what happens to processes
// from outside does not keep it from being hit: they start with it again, sooner or later at the first hit.
func TestEveryPointIsASubject(t *testing.T) {
	const rounds, starts = 60, 8
	for name, s := range map[string]setting{
		"killed": {}, "power cut": {power: true}, "Azurite": {azurite: true}, "Apache Kafka": {kafka: true}, "flights": {job: "flights"},
	} {
		left := make(map[string]bool)
		for _, in := range []string{failpoint.Worker, failpoint.Broker} {
			for _, point := range s.points(in) {
				left[point] = !s.kafka || in == failpoint.Worker
			}
		}
		for seed := uint64(1); seed <= rounds; seed++ {
			p := newPlan(seed, s)
			delete(left, p.subject.point)
			if f := p.subject.at(p.subject.slot, starts); f == nil || f.point != p.subject.point || f.count != 1 {
				t.Errorf("%s: after %d starts, %s has %q, want %s:1", name, starts, slotName(p.subject.slot), f.env(), p.subject.point)
			}
		}
		for point, possible := range left {
			if possible {
				t.Errorf("%s: no round in %d is about %s", name, rounds, point)
			}
		}
	}
}

func TestRoundsAreReadStrictly(t *testing.T) {
	if o, err := parseFlags([]string{"-seed", "7"}); o.from != 7 || o.to != 7 || err != nil {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{{"-seed", "0"}, {"-rounds", "1-2x"}, {"-rounds", "3"}, {"-rounds", "5-3"}, {"-rounds", "0-3"}} {
		if o, err := parseFlags(args); err == nil {
			t.Errorf("%q is %d-%d", args, o.from, o.to)
		}
	}
}
