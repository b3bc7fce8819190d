package main

import "testing"

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
