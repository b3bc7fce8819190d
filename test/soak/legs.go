package main

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// leg is one kind of proof. Its command runs the seeds, rounds or seconds from one number to another, prints what
// failed, and ends with a line that says how much was done.
type leg struct {
	name, about string
	unit        string // of what its last line counts
	needs       string // other programs that it needs
	build       []string
	env         []string
	command     func(bin string, from, to uint64) []string
	// last finds the last line. Its groups are named done, failed and, for the table, detail; without the group done,
	// what was asked for was done.
	last  *regexp.Regexp
	first uint64 // so many in the first piece, and about the least in any
	once  bool   // it has no seeds: more than once shows nothing
}

// seedLine ends the simulations.
var seedLine = regexp.MustCompile(`(?m)^(?P<done>\d+) seeds, (?P<failed>\d+) failed, [\d.]+ seeds/s; \{?(?P<detail>.*?)\}?$`)

// roundLine ends the crash drill.
var roundLine = regexp.MustCompile(`(?m)^(?P<done>\d+) rounds \(.*\) in .*? each; (?P<detail>.*); (?P<failed>\d+) failed$`)

var legs = []leg{
	{
		name: "cores", about: "the machine alone, hundreds of seeds a second", unit: "seeds", build: []string{"./internal/sim"},
		command: simulate("-cores"), last: seedLine, first: 5000,
	},
	{
		name: "world", about: "the broker, and on odd seeds a stream job over it, in their simulated world", unit: "seeds", build: []string{"./internal/sim"},
		command: simulate(), last: seedLine, first: 50,
	},
	{
		name: "blob", about: "blob sinks in their simulated world", unit: "seeds", build: []string{"./internal/sim"},
		command: simulate("-blob"), last: seedLine, first: 500,
	},
	{
		name: "job", about: "stream jobs with blob sinks over the broker in their simulated world", unit: "seeds", build: []string{"./internal/sim"},
		command: simulate("-world", "job", "-blob"), last: seedLine, first: 50,
	},
	{
		name: "mutants", about: "every defect that can be switched on is found by the simulation", unit: "defects",
		command: func(string, uint64, uint64) []string {
			return []string{"sh", "-c", "go test -tags mutants -count=1 -timeout 2h -json ./internal/sim/mutants | go run ./.ci/count mutants"}
		},
		last: regexp.MustCompile(`(?m)^mutants: (?P<done>\d+) passed, (?P<failed>\d+) failed`), first: 1, once: true,
	},
	{
		name: "drill", about: "broker and job as real processes, killed at random and at failpoints", unit: "rounds", build: []string{"./test/drill"},
		command: rounds(), last: roundLine, first: 3,
	},
	{
		name: "power", about: "the same drill, where the death of the broker is a power cut", unit: "rounds", build: []string{"./test/drill"},
		command: rounds("-power"), last: roundLine, first: 3,
	},
	{
		name: "strandline", about: "the drill that users run, with twenty kills", unit: "runs", build: []string{"./cmd/strandline"},
		command: func(bin string, _, _ uint64) []string {
			return []string{filepath.Join(bin, "strandline"), "drill", "--kills", "20", "--every", "1s"}
		},
		last: regexp.MustCompile(`(?m)^(?P<detail>\d+ transactions committed, .*)$`), first: 1,
	},
	{
		name: "fuzz", about: "every fuzz target for so many seconds", unit: "executions",
		command: func(_ string, from, to uint64) []string {
			return []string{".ci/fuzz", strconv.FormatUint(to-from+1, 10)}
		},
		last: regexp.MustCompile(`(?m)^fuzz: (?P<detail>\d+ targets of \d+s), (?P<done>\d+) executions, (?P<failed>\d+) failed$`), first: 10,
	},
	{
		name: "kafka", about: "the job of the drill on Apache Kafka, which is killed too", unit: "rounds", needs: "Apache Kafka",
		build: []string{"./test/drill"}, command: rounds("-kafka"), last: roundLine, first: 3,
	},
	{
		name: "azurite", about: "the drill with its blobs in Azurite", unit: "rounds", needs: "Azurite",
		build: []string{"./test/drill"}, command: rounds("-azurite"), last: roundLine, first: 3,
	},
}

func simulate(flags ...string) func(bin string, from, to uint64) []string {
	return func(bin string, from, to uint64) []string {
		return append([]string{filepath.Join(bin, "sim"), "-seeds", span(from, to)}, flags...)
	}
}

func rounds(flags ...string) func(bin string, from, to uint64) []string {
	return func(bin string, from, to uint64) []string {
		return append([]string{filepath.Join(bin, "drill"), "-rounds", span(from, to)}, flags...)
	}
}

func span(from, to uint64) string {
	return strconv.FormatUint(from, 10) + "-" + strconv.FormatUint(to, 10)
}

// maxFailures bounds how many lines a piece keeps of what failed.
const maxFailures = 40

// failure is a line that says what failed, or how it is repeated.
var failure = regexp.MustCompile(`fails:|^ *--- FAIL|^FAILED|^fail |^  go run `)

// read takes over what the leg's output says; found is whether it had its last line.
func (p *piece) read(l leg, out string) (found bool) {
	matches := l.last.FindAllStringSubmatch(out, -1)
	p.Done = p.To - p.From + 1
	for _, line := range strings.Split(out, "\n") {
		if failure.MatchString(line) && len(p.Failures) < maxFailures {
			p.Failures = append(p.Failures, shortened(strings.TrimSpace(line)))
		}
	}
	if len(matches) == 0 {
		return false
	}
	last := matches[len(matches)-1]
	for i, name := range l.last.SubexpNames() {
		switch name {
		case "done":
			p.Done, _ = strconv.ParseUint(last[i], 10, 64)
		case "failed":
			p.Failed, _ = strconv.ParseUint(last[i], 10, 64)
		case "detail":
			p.Detail = last[i]
		}
	}
	return true
}

// maxLineBytes bounds a line that is kept: a failure may show a whole world.
const maxLineBytes = 300

func shortened(line string) string {
	if len(line) <= maxLineBytes {
		return line
	}
	return strings.ToValidUTF8(line[:maxLineBytes], "") + " …"
}

func lastLines(out string, n int) []string {
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i := range lines {
		lines[i] = shortened(lines[i])
	}
	return lines
}
