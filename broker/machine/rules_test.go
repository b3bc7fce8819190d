package machine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// rule is a statement of kafka-eos.md, named by section and row, as a script: lines of a command and, behind an arrow, its
// answer. What a line without an arrow answers is of no interest.
type rule struct{ name, script string }

// checkRules runs each rule in a world of its own.
func checkRules(t *testing.T, cfg Config, rules ...rule) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) { newWorld(t, cfg).script(r.script) })
	}
}

// script runs lines; those that begin with # say why.
func (w *world) script(text string) {
	w.t.Helper()
	for line := range strings.Lines(text) {
		command, want, judged := strings.Cut(line, "→")
		command = strings.TrimSpace(command)
		switch {
		case command == "" || strings.HasPrefix(command, "#"):
		case judged:
			w.expect(command, strings.TrimSpace(want))
		default:
			w.run(command)
		}
	}
}

// runRule carries out what rules ask for beyond requests:
//
//	deny OPERATION RESOURCE NAME (- for any) | allow | writes COMMAND (and says how many units that wrote)
//	recover (from the journal) | sleep ms= (nothing runs meanwhile) | epoch to= | entry [id=] (what the coordinator has)
func (w *world) runRule(verb, command string, a *args) (answer string, known bool) {
	w.t.Helper()
	switch verb {
	case "deny":
		w.deny(a.Bare[0], a.Bare[1], a.Bare[2])
	case "allow":
		w.m.may = anybodyMay
	case "writes":
		before := len(w.journal)
		answer = w.run(strings.TrimPrefix(command, "writes "))
		answer = fmt.Sprintf("%d units: %s", len(w.journal)-before, answer)
	case "recover":
		w.recover()
	case "sleep":
		w.now.WallMs, w.now.EngineMs = w.now.WallMs+a.Num("ms", 0), w.now.EngineMs+a.Num("ms", 0)
	case "epoch":
		raiseEpoch(w, int16(a.Num("to", 0)))
	case "entry":
		e, ok := w.m.txns.Get(a.id())
		if !ok {
			return "unknown", true
		}
		openFor := int64(-1)
		if e.StartMs >= 0 {
			openFor = w.now.EngineMs - e.StartMs
		}
		answer = fmt.Sprintf("%v pid=%d epoch=%d prev=%d last=%d timeout=%d open-for=%d in %d %q",
			e.State, e.ProducerID, e.Epoch, e.PrevProducerID, e.LastEpoch, e.TimeoutMs, openFor, e.Partitions, e.Groups)
	default:
		return "", false
	}
	return answer, true
}

func (w *world) deny(operation, resource, name string) {
	w.t.Helper()
	op, err := kmsg.ParseACLOperation(operation)
	if err != nil {
		w.t.Fatal(err)
	}
	kind, err := kmsg.ParseACLResourceType(resource)
	if err != nil {
		w.t.Fatal(err)
	}
	if name == "-" {
		name = ""
	}
	before := w.m.may
	w.m.may = func(c *Client, a Access) bool { return a != Access{op, kind, name} && before(c, a) }
}
