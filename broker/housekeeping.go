package broker

import (
	"log/slog"
	"time"

	"github.com/strandline-io/strandline/broker/keeper"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/sequencer"
)

// housekeeper runs a keeper in a goroutine of its own.
type housekeeper struct {
	*keeper.Keeper
	engine *engine
	log    *slog.Logger
	wake   chan struct{} // room for one signal
	quit   chan struct{}
	done   chan struct{}
}

func newHousekeeper(cfg Config, e *engine, board *sequencer.Board, r *keeper.Recovery) *housekeeper {
	k := &housekeeper{
		engine: e, log: cfg.Logger,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	k.Keeper = keeper.New(keeper.Config{
		Env: k, Journal: e.journal, Store: e.store, Board: board, Recovery: r,
		JournalMaxBytes: cfg.JournalMaxBytes, Verify: cfg.Verify,
	})
	return k
}

// start runs the goroutine.
func (k *housekeeper) start() {
	go func() {
		defer close(k.done)
		if err := k.Run(); err != nil {
			k.engine.Fail(err)
		}
	}()
}

func (k *housekeeper) stop() {
	close(k.quit)
	<-k.done
}

// Record implements keeper.Env.
func (k *housekeeper) Record(op *machine.Shelved) error {
	box := make(signalBox, 1)
	if err := k.engine.Submit(&sequencer.Operation{Op: machine.Op{Body: op}, Box: box}); err != nil {
		return err
	}
	select {
	case <-box:
		return nil
	case <-k.engine.Done():
		return sequencer.ErrStopped
	}
}

// signalBox is a mailbox that only tells that a reply came.
type signalBox chan struct{}

// Deliver tells.
func (b signalBox) Deliver([]machine.Reply) { b <- struct{}{} }

// Pause implements keeper.Env.
func (k *housekeeper) Pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-k.quit:
	case <-k.wake:
	case <-timer.C:
	}
}

// Wake implements keeper.Env.
func (k *housekeeper) Wake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Stopping implements keeper.Env.
func (k *housekeeper) Stopping() bool {
	select {
	case <-k.quit:
		return true
	default:
		return false
	}
}

// SetSlow implements keeper.Env.
func (k *housekeeper) SetSlow(slow bool) { k.engine.SetSlow(slow) }

// Trouble implements keeper.Env.
func (k *housekeeper) Trouble(err error) {
	k.log.Error("moving data out of the journal failed; it will be tried again", "error", err)
}
