package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func legOf(t *testing.T, name string) leg {
	t.Helper()
	for _, l := range legs {
		if l.name == name {
			return l
		}
	}
	t.Fatalf("no leg %s", name)
	return leg{}
}

// TestLastLines reads what the commands print today: who changes that sees it here.
func TestLastLines(t *testing.T) {
	f := func(leg, out string, done, failed uint64, detail string) {
		t.Helper()
		p := piece{From: 1, To: 5}
		if !p.read(legOf(t, leg), out) || p.Done != done || p.Failed != failed || p.Detail != detail {
			t.Errorf("%s: %+v", leg, p)
		}
	}
	f("world", "seed 3 fails: V1: x\n  go run ./internal/sim -seed 3 -v\n300 seeds, 1 failed, 17.2 seeds/s; {Crashes:7 PowerCuts:2}\n", 300, 1, "Crashes:7 PowerCuts:2")
	f("cores", "20000 seeds, 0 failed, 1049 seeds/s; {Operations:7}\n", 20000, 0, "Operations:7")
	f("fuzz", "ok    a FuzzB: 12 executions, 3 inputs\nfuzz: 27 targets of 60s, 1234 executions, 0 failed\n", 1234, 0, "27 targets of 60s")
	f("mutants", "pass x\nmutants: 41 passed, 0 failed, 0 skipped\n", 41, 0, "")
	f("drill", "\n50 rounds (seeds 1-50) in 400 s, 8.0 s each; 120 faults from outside, 77 at failpoints; 0 failed\n", 50, 0, "120 faults from outside, 77 at failpoints")
	f("strandline", "\n9000 transactions committed, 3 aborted on purpose.\n", 5, 0, "9000 transactions committed, 3 aborted on purpose.")
}

func TestFailuresAreKept(t *testing.T) {
	p := piece{From: 1, To: 300}
	out := "seed 3 fails: V1: x\n  go run ./internal/sim -seed 3 -v\nanything else\n300 seeds, 1 failed, 1 seeds/s; {}\n"
	p.read(legOf(t, "world"), out)
	if got := strings.Join(p.Failures, "|"); got != "seed 3 fails: V1: x|go run ./internal/sim -seed 3 -v" {
		t.Errorf("kept %q", got)
	}
}

// script is a leg that runs a shell script.
func script(name, text string) leg {
	l := leg{name: name, unit: "seeds", last: seedLine, first: 10}
	l.command = func(_ string, from, to uint64) []string {
		return []string{"sh", "-c", text, "sh", span(from, to)}
	}
	return l
}

// TestSoakGoesOn: a second soak begins where the first one ended, and what failed is told at the end.
func TestSoakGoesOn(t *testing.T) {
	o := options{piece: time.Minute, results: filepath.Join(t.TempDir(), "results.jsonl"), count: 25}
	o.legs = []leg{script("fine", `echo "10 seeds, 0 failed, 1 seeds/s; {Crashes:4 Power:1}"`)}
	for range 2 {
		if ok, err := soak(t.Context(), o); !ok || err != nil {
			t.Fatalf("%v, %v", ok, err)
		}
	}
	f := func(name, text string) {
		t.Helper()
		o.legs, o.count = []leg{script(name, text)}, 1
		if ok, err := soak(t.Context(), o); ok || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	f("failing", `echo "10 seeds, 2 failed, 1 seeds/s; {}"; exit 1`)
	f("dying", `echo "10 seeds, 0 failed, 1 seeds/s; {}"; exit 1`)
	f("silent", `echo nothing`)
	b, err := openBook(o.results)
	if err != nil {
		t.Fatal(err)
	}
	if b.next("fine") != 51 || b.next("failing") != 2 || b.next("new") != 1 {
		t.Errorf("goes on at %d, %d, %d", b.next("fine"), b.next("failing"), b.next("new"))
	}
	if got := table(b.pieces); !strings.Contains(got, "| 1-50 | 0 |") || !strings.Contains(got, "16 crashes, 4 power |") || !strings.Contains(got, "| failing | 10 seeds | 1-1 | 2 |") {
		t.Errorf("table\n%s", got)
	}
}

func TestResize(t *testing.T) {
	f := func(n uint64, seconds float64, d time.Duration, want uint64) {
		t.Helper()
		if got := resize(n, seconds, d); got != want {
			t.Errorf("%d of %d", got, want)
		}
	}
	f(100, 10, time.Minute, 600)
	f(1, 90, time.Minute, 0)
	if got := grouped(1234567); got != "1,234,567" {
		t.Error(got)
	}
}

// TestInterruptedSoakLeavesNothing: what a leg has started ends with the soak, and is not kept as run.
func TestInterruptedSoakLeavesNothing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no shell")
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if out, err := exec.Command("mkfifo", pipe).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	o := options{piece: time.Minute, results: filepath.Join(t.TempDir(), "results.jsonl"), count: 1}
	o.legs = []leg{script("long", "sleep 1000 >"+pipe+" | cat")}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := soak(ctx, o)
		ended <- err
	}()
	held, err := os.OpenFile(pipe, os.O_RDONLY, 0) // when the grandchild has opened its end
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	interrupt()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := io.ReadAll(held); err != nil { // ends when nobody holds the other end
		t.Error(err)
	}
	if b, err := openBook(o.results); err != nil || len(b.pieces) > 0 {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestDamagedResults: what a crash tore off the end is dropped, for good; anything else is refused.
func TestDamagedResults(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results.jsonl")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const line = `{"leg":"fine","from":1,"to":5,"done":5}` + "\n"
	write(line + `{"leg":"fine","fro`)
	b, err := takeBook(name)
	if err != nil || b.next("fine") != 6 {
		t.Fatalf("%+v, %v", b, err)
	}
	if runtime.GOOS != "windows" {
		if second, err := takeBook(name); err == nil {
			t.Errorf("two have the file: %+v", second)
		}
	}
	if err := errors.Join(b.add(piece{Leg: "fine", From: 6, To: 9, Failed: 1}), b.add(piece{Leg: "fine", From: 6, To: 7, Done: 2}), b.close()); err != nil {
		t.Fatal(err)
	}
	if b, err = openBook(name); err != nil || len(b.pieces) != 3 || b.next("fine") != 8 || !strings.Contains(table(b.pieces), "| 1-7 | 1 |") {
		t.Errorf("%+v, %v", b, err)
	}
	for _, bad := range []string{`{"leg":"fi` + "\n" + line, line + `{"leg":"fine","from":7,"to":6,"done":1}` + "\n", line + "\n"} {
		write(bad)
		if _, err := takeBook(name); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestResultsAreOpenedFirst: nothing runs whose result could not be kept.
func TestResultsAreOpenedFirst(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	o := options{piece: time.Minute, results: filepath.Join(t.TempDir(), "missing", "results.jsonl"), count: 1, legs: []leg{script("any", "touch "+ran)}}
	if _, err := soak(t.Context(), o); err == nil {
		t.Error("a file in no folder is written")
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the leg ran")
	}
}
