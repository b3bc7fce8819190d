//go:build peers

package clients

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/test/peers"
)

// program is a client's program of this folder: `PROGRAM BROKER STEP`, which prints ok or ends with what was wrong.
type program struct {
	command []string
	env     []string
	b       *peers.Program
}

// stepMax ends a step that hangs, so that the test fails with what it has said.
const stepMax = 2 * time.Minute

func (p *program) step(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	all := append(append([]string{}, p.command...), p.b.Addr, name)
	all = append(all, args...)
	ctx, cancel := context.WithTimeout(context.Background(), stepMax)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	return cmd
}

// ok is a trial that runs one step.
func (p *program) ok(name string, args ...string) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		contains(t, name, peers.Run(t, p.step(t, name, args...)), "ok")
	}
}

// committed is a trial of the step that reads what abortedBetween has left of the topic "aborted".
func (p *program) committed() func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		kept := abortedBetween(t, p.b.Addr, "aborted")
		p.ok("committed", strconv.Itoa(kept))(t)
	}
}

// killed is a trial that runs a step while the broker is killed every 0.7 seconds.
func (p *program) killed(name string) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		p.ok("prepare")(t)
		contains(t, name, runUnderKills(t, p.b, 700*time.Millisecond, p.step(t, name)), "ok")
	}
}

// abortedBetween fills a topic with transactions of 50 records, by turns committed and aborted, the last one committed. The
// committed ones hold kept-0 and so on, as many as it returns.
func abortedBetween(t *testing.T, addr, topic string) (kept int) {
	t.Helper()
	cl := kgoClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.TransactionalID(topic), kgo.UnknownTopicRetries(-1))
	for i := range 9 {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			value := fmt.Sprintf("gone-%d", i)
			if i%2 == 0 {
				value = fmt.Sprintf("kept-%d", kept)
				kept++
			}
			if err := cl.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := cl.EndTransaction(t.Context(), kgo.TransactionEndTry(i%2 == 0)); err != nil {
			t.Fatal(err)
		}
	}
	return kept
}
