package drill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// answerWithin is how long a started broker may take until it answers.
	answerWithin = 5 * time.Minute
	// goneWithin is how long a killed broker may go on answering.
	goneWithin = 5 * time.Second
	// killWithin is how long a kill command may run.
	killWithin = time.Minute
	askEvery   = 20 * time.Millisecond
	askWait    = 2 * time.Second
)

// target is the broker that is killed. Its methods must not overlap, but failure and lastWords.
type target struct {
	addrs    []string
	starting []string // command; none if it is running already
	restart  []string
	killing  []string // command; without it the child is killed
	own      bool
	dir      string // temporary, else empty
	child    *child // newest; nil before the first start
	children []*child
}

func newTarget(c Config) (*target, error) {
	if len(c.Brokers) > 0 {
		t := &target{addrs: c.Brokers, starting: shell(c.StartCmd), restart: shell(c.RestartCmd), killing: shell(c.KillCmd)}
		if t.restart == nil {
			t.restart = t.starting
		}
		return t, nil
	}
	t := &target{own: true}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	dir := c.DataDir
	if dir == "" {
		if t.dir, err = os.MkdirTemp("", "strandline-drill-"); err != nil {
			return nil, err
		}
		dir = filepath.Join(t.dir, "broker")
	}
	t.addrs = []string{addr}
	t.starting = append(append([]string{}, c.Serve...), "--listen", addr, "--data-dir", dir, "--durability", c.Durability)
	t.restart = t.starting
	return t, nil
}

func (t *target) String() string {
	if t.own {
		return t.addrs[0] + " (" + strings.Join(t.starting[:2], " ") + ")"
	}
	return strings.Join(t.addrs, ",")
}

// freeAddress returns a free address whose port is below those that systems give to outgoing connections: else a client
// that dials while the broker is down could be given the broker's port, and keep it.
func freeAddress() (string, error) {
	for range 1000 {
		addr := "127.0.0.1:" + strconv.Itoa(15_000+rand.IntN(17_000))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr, nil
		}
	}
	return "", errors.New("no free port between 15000 and 32000 on 127.0.0.1")
}

// start starts the broker, unless it runs already, and waits until it answers.
func (t *target) start(ctx context.Context) error {
	if t.starting != nil {
		if err := t.launch(t.starting); err != nil {
			return err
		}
	}
	return t.answers(ctx)
}

// again starts the broker after a kill and waits until it answers.
func (t *target) again(ctx context.Context) error {
	if err := t.launch(t.restart); err != nil {
		return err
	}
	return t.answers(ctx)
}

func (t *target) launch(command []string) error {
	c, err := startChild(command)
	if err != nil {
		return fmt.Errorf("start %q: %w", strings.Join(command, " "), err)
	}
	t.child = c
	t.children = append(t.children, c)
	return nil
}

// kill kills the broker and makes sure that it is dead.
func (t *target) kill(ctx context.Context) error {
	if err := t.failure(); err != nil {
		return err
	}
	if t.killing == nil {
		t.child.kill()
	} else if err := t.runKilling(ctx); err != nil {
		return err
	}
	deadline := time.Now().Add(goneWithin)
	for ask(ctx, t.addrs) == nil {
		if time.Now().After(deadline) {
			return fmt.Errorf("the broker at %s still answers %v after it was killed: does --kill-cmd kill it?", t, goneWithin)
		}
		if err := pause(ctx, askEvery); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (t *target) runKilling(ctx context.Context) error {
	c, err := startChild(t.killing)
	if err != nil {
		return fmt.Errorf("kill command: %w", err)
	}
	defer c.kill()
	select {
	case <-c.ended:
		if c.err != nil {
			return fmt.Errorf("kill command %q: %w\n%s", t.killing[len(t.killing)-1], c.err, c.output.text())
		}
		return nil
	case <-time.After(killWithin):
		return fmt.Errorf("kill command %q did not end within %v", t.killing[len(t.killing)-1], killWithin)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answers waits until the broker answers.
func (t *target) answers(ctx context.Context) error {
	deadline := time.Now().Add(answerWithin)
	for {
		err := ask(ctx, t.addrs)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no broker answers at %s within %v: %w", t, answerWithin, err)
		}
		if err := t.failure(); err != nil {
			return err
		}
		if t.child == nil {
			return fmt.Errorf("no broker answers at %s: %w: start it, or give --start-cmd", t, err)
		}
		if err := pause(ctx, askEvery); err != nil {
			return err
		}
	}
}

// failure says that the broker ended although nobody killed it. A foreign command may end well: its broker may live on.
func (t *target) failure() error {
	if t.child == nil {
		return nil
	}
	select {
	case <-t.child.ended:
	default:
		return nil
	}
	if t.own {
		return fmt.Errorf("the broker ended by itself: %v", t.child.err)
	}
	if t.child.err != nil {
		return fmt.Errorf("the broker's command ended by itself: %w", t.child.err)
	}
	return nil
}

// lastWords is the newest output of the broker, for a failure's message.
func (t *target) lastWords() string {
	if t.child == nil {
		return ""
	}
	if said := t.child.output.text(); said != "" {
		return "\nlast output of the broker:\n" + said
	}
	return ""
}

// close ends what the drill has started and removes its folder, or says where it is.
func (t *target) close(remove bool) error {
	if t.killing != nil && t.starting != nil {
		_ = t.runKilling(context.Background()) // it may be dead already
	}
	for _, c := range t.children {
		c.kill()
	}
	switch {
	case t.dir == "":
		return nil
	case remove:
		return os.RemoveAll(t.dir)
	}
	return fmt.Errorf("the broker's data are kept in %s", t.dir)
}

// ask reports whether a broker answers a request that it can answer only when it serves.
func ask(ctx context.Context, addrs []string) error {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.DialTimeout(askWait), kgo.RequestRetries(0), kgo.ClientID("strandline-drill"))
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Ping(ctx)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
