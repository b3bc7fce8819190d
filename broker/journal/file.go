package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/strandline-io/strandline/internal/vfs"
)

// File is a journal in files. It keeps three goroutines: one writes, one syncs, one prepares, seals and frees
// segments; and a timer, but only while there is something for it to do.
type File struct {
	*engine
	unlock func() error

	interval time.Duration
	timer    *time.Timer
	armed    bool // guarded by engine.mu

	quit  chan struct{}
	done  sync.WaitGroup
	quiet chan struct{} // closed when everything is done after Close began
}

// Empty reports whether dir holds no journal yet, or none any more: neither a segment nor a snapshot.
func Empty(disk vfs.FS, dir string) (bool, error) {
	names, err := disk.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("journal folder: %w", err)
	}
	isSegment := func(name string) bool { _, _, ok := parseSegmentName(name); return ok }
	return len(snapshotSeqs(names)) == 0 && !slices.ContainsFunc(names, isSegment), nil
}

// OpenFile opens the journal in cfg.Dir, making it if it is new, and takes its lock; a folder that another process
// (or another File) has open is refused with vfs.ErrLocked. Before it returns, it calls in this order and from this
// goroutine: cfg.Restore, cfg.Extents, and replay for every unit after the snapshot. Everything it replayed is
// durable when it returns. Damage is ErrCorrupt, with file and offset. events may be called from then on.
func OpenFile(cfg FileConfig, replay func(Stored) error, events func(Event)) (*File, error) {
	e, unlock, err := recoverJournal(cfg, replay, events)
	if err != nil {
		return nil, err
	}
	cfg, _ = cfg.withDefaults()
	f := &File{engine: e, unlock: unlock, interval: cfg.TickInterval, quit: make(chan struct{}), quiet: make(chan struct{})}
	f.idle = f.settled
	for l := range laneCount {
		f.done.Go(func() { f.run(l) })
	}
	f.start()
	return f, nil
}

// run is one lane's goroutine.
func (f *File) run(l Lane) {
	for {
		if a, ok := f.take(l); ok {
			f.finish(l, f.disk.do(a))
			continue
		}
		select {
		case <-f.wake[l]:
		case <-f.quit:
			return
		}
	}
}

// settled looks after every change whether time matters and whether Close may end. It is called with mu held.
func (f *File) settled() {
	if !f.armed && f.core.WantsTick() {
		f.armed = true
		if f.timer == nil {
			f.timer = time.AfterFunc(f.interval, f.tick)
		} else {
			f.timer.Reset(f.interval)
		}
	}
	if f.core.stopping && f.drained() {
		select {
		case <-f.quiet:
		default:
			close(f.quiet)
		}
	}
}

func (f *File) tick() {
	f.mu.Lock()
	f.armed = false
	f.mu.Unlock()
	f.tell(Input{kind: inTick})
}

// Close implements Journal. It waits for what was appended, syncs and seals it, and gives the folder free. After a
// failure it only does the last and returns the failure.
func (f *File) Close() error {
	if f.stop() {
		return errors.New("the journal is closed already")
	}
	<-f.quiet
	close(f.quit)
	f.done.Wait()
	err := f.shut(f.unlock)
	f.mu.Lock()
	timer := f.timer
	f.mu.Unlock()
	if timer != nil {
		timer.Stop()
	}
	return err
}
