package group

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/scripttest"
)

// The rules of kafka-eos.md D without D.3 (KIP-848) are scripts, and what else tests them:
//
//	D.1  TestFindCoordinator in machine; internal topics are never made: docs/compat.md
//	D.2  d2_*.txt, a block for each row; states over a restart: v5_restart.txt; an assignment is told when it is durable:
//	     TestNothingIsSaidBeforeItIsDurable in sequencer; any order of everything: TestRandom
//	D.4  d4_*.txt, d4_consumers.txt for the consumer protocol; permissions: TestDeniedGroups in machine
//	D.5  d5_members.txt, d5_txn.txt; with the coordinator: TestB6TxnOffsetCommit, TestNoOffsetsOutsideOfTransactions in machine; what is
//	     pending is deleted with its key: d4_delete.txt (OffsetDelete, DeleteGroups), d5_txn.txt (topics); does not expire: d6_retention.txt;
//	     an answer waits for what it saw: TestARefusalWaitsForWhatItSaw in sequencer
//	D.6  d6_retention.txt; other bytes: TestFormatPage, docs/formats/group.md

// TestScripts runs the scripts in testdata. A line is a comment, or a command `[label:] verb [key=value]...`; the
// lines below it, indented, are what it does: records ("log"), answers ("label answer"), and the time at which a
// tick did something. After each command the replayed and the restored state must equal the running one.
func TestScripts(t *testing.T) { scripttest.Files(t, runScript) }

type script struct {
	*world
	out        strings.Builder
	labels     map[uint64]string
	args       map[string]string
	flags      []string    // words without "="
	quiet      int64       // the time of the last tick that was shown
	assignment *Assignment // handed out last
	frame      []byte      // the bytes of the request, which are gone when it has been decided
}

func runScript(t *testing.T, text string) string {
	s := &script{}
	s.reset(newWorld(t, Config{}))
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue
		}
		s.out.WriteString(line + "\n")
		if line != "" && !strings.HasPrefix(line, "#") {
			s.command(line)
		}
	}
	return s.out.String()
}

func (s *script) reset(w *world) {
	s.world = w
	s.labels = map[uint64]string{}
	w.log = func(kind uint8, payload []byte) { s.effect("log %s", describeRecord(w.t, kind, payload)) }
	w.reply = func(op uint64, resp kmsg.Response) {
		label, ok := s.labels[op]
		if !ok {
			w.t.Fatalf("operation %d is answered twice, or was never asked", op)
		}
		delete(s.labels, op)
		s.effect("%s %s", label, describeResponse(w.t, resp))
	}
}

func (s *script) effect(format string, args ...any) {
	if s.ms != s.quiet {
		s.quiet = s.ms
		fmt.Fprintf(&s.out, "  at %d\n", s.ms)
	}
	fmt.Fprintf(&s.out, "  "+format+"\n", args...)
}

func (s *script) command(line string) {
	s.t.Helper()
	words := strings.Fields(line)
	s.op++
	label := fmt.Sprintf("#%d", s.op)
	if l, ok := strings.CutSuffix(words[0], ":"); ok {
		label, words = l, words[1:]
	}
	c := scripttest.Parse(strings.Join(words, " "))
	s.args, s.flags = c.Values, c.Bare
	s.quiet = s.ms
	verb := c.Verb
	if run, ok := s.requests()[verb]; ok {
		s.labels[s.op] = label
		if v, ok := s.args["client"]; ok {
			s.client = v
		}
		run()
		clear(s.frame)
	} else if run, ok := s.controls()[verb]; ok {
		run()
	} else {
		s.t.Fatalf("unknown verb %q", verb)
	}
	s.check()
}

var migration = map[string]MigrationPolicy{"upgrade": MigrationUpgrade, "downgrade": MigrationDowngrade, "disabled": MigrationDisabled}

// controls are the verbs that are no requests.
func (s *script) controls() map[string]func() {
	return map[string]func(){
		"config": func() {
			s.reset(newWorld(s.t, Config{
				InitialRebalanceDelayMs: int32(s.num("delay", 0)), MaxGroupSize: int(s.num("size", 0)), MaxConsumerGroupSize: int(s.num("size", 0)),
				MaxPendingMembers: int(s.num("pending", 0)), MaxGroups: int(s.num("groups", 0)),
				MaxOffsetsPerGroup: int(s.num("offsets", 0)), MaxGroupBytes: int(s.num("bytes", 0)),
				MaxStateBytes: s.num("state", 0), OffsetsRetentionMs: s.num("retention", 0),
				InlineAssignment:     int(s.num("inline", 0)),
				AssignmentIntervalMs: int32(s.num("interval", -1)),
				Migration:            migration[s.args["migration"]],
			}))
			s.quiet = s.ms
		},
		"topic":    func() { s.topics[s.flags[0]] = int32(s.num("partitions", 2)); s.topicsVersion++ },
		"assigned": func() { s.assignment.Make(); s.gs.Assigned(s, s.assignment) },
		"matched": func() {
			s.gs.Matched(s, s.group(), uint64(s.num("version", int64(s.topicsVersion))),
				MatchedPattern{Pattern: s.args["regex"], Topics: s.list("topics")})
		},
		"set": func() {
			var entries []Setting
			for name, value := range s.args {
				entries = append(entries, Setting{name, value})
			}
			s.effect("%s", codeName(s.gs.SetSettings(s, s.flags[0], entries)))
		},
		"wait":    func() { s.wait(s.flag64(0)) },
		"restart": func() { s.restart(); s.labels = map[uint64]string{} },
		"end": func() {
			id, commit := s.num("pid", 0), s.flags[0] == "commit"
			s.change(func(gs *Groups) { gs.ApplyTxnEnd(id, commit) })
		},
		"delete-topic": func() {
			name := s.flags[0]
			delete(s.topics, name)
			s.topicsVersion++
			s.change(func(gs *Groups) { gs.ApplyTopicDeleted(name) })
		},
		"pending": func() { s.effect("%v", s.gs.HasPending(s.num("pid", 0))) },
	}
}

func (s *script) num(key string, def int64) int64 {
	text, ok := s.args[key]
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		s.t.Fatalf("%s=%s: %v", key, text, err)
	}
	return n
}

func (s *script) flag64(i int) int64 {
	n, err := strconv.ParseInt(s.flags[i], 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) optional(key string) *string {
	if v, ok := s.args[key]; ok {
		return &v
	}
	return nil
}

// list splits a comma separated argument.
func (s *script) list(key string) []string {
	if s.args[key] == "" {
		return nil
	}
	return strings.Split(s.args[key], ",")
}

// wire sends a request through the bytes of its version, so that fields which the version lacks are lost.
func wire[R kmsg.Request](s *script, req R, def int64) R {
	s.t.Helper()
	req.SetVersion(int16(s.num("v", def)))
	s.frame = req.AppendTo(nil)
	out := kmsg.RequestForKey(req.Key())
	out.SetVersion(req.GetVersion())
	if err := out.ReadFrom(s.frame); err != nil {
		s.t.Fatal(err)
	}
	return out.(R)
}
