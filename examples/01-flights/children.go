package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/task"
)

const (
	// childStop is how long a worker process takes at most to end when its parent is gone.
	childStop = 3 * time.Second
	// A child that died is started again, after a pause that grows while it dies young.
	restartPause    = 100 * time.Millisecond
	maxRestartPause = 2 * time.Second
	youngDeath      = 2 * time.Second
	maxYoungDeaths  = 10
)

// runChildren runs the job in worker processes of this binary and watches its progress meanwhile.
func runChildren(ctx context.Context, o options, plan *stream.Plan, cfg task.Config, stderr io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchCtx, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var watching, group sync.WaitGroup
	watching.Add(1)
	go func() {
		defer watching.Done()
		if err := task.Watch(watchCtx, plan, cfg); err != nil {
			cancel(err)
		}
	}()
	for replica := range o.workers {
		group.Add(1)
		go func() {
			defer group.Done()
			if err := keepRunning(ctx, o, replica, cfg.Kafka.Brokers, stderr); err != nil {
				cancel(err)
			}
		}()
	}
	group.Wait()
	if ctx.Err() != nil {
		stopWatching()
	} else {
		defer time.AfterFunc(childStop, stopWatching).Stop() // the last checkpoints end the display
	}
	watching.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// keepRunning starts a child, and starts it again when it died, until it ends by itself.
func keepRunning(ctx context.Context, o options, replica int, brokers []string, stderr io.Writer) error {
	young, pause := 0, restartPause
	for {
		began := time.Now()
		code, err := runProcess(ctx, o, replica, brokers, stderr)
		switch {
		case ctx.Err() != nil || code == exitOK && err == nil:
			return nil
		case code == exitRefused || code == exitUsage:
			return fmt.Errorf("worker process %d has stopped, see above", replica)
		case time.Since(began) >= youngDeath:
			young, pause = 0, restartPause
		default:
			young++
		}
		if young >= maxYoungDeaths {
			return fmt.Errorf("worker process %d died %d times within %v of its start: %w", replica, young, youngDeath, err)
		}
		fmt.Fprintf(stderr, "worker process %d died (%v), starting it again\n", replica, err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, maxRestartPause)
	}
}

// runProcess runs one child to its end. While it lives its standard input is open; closing it tells the child to stop.
func runProcess(ctx context.Context, o options, replica int, brokers []string, stderr io.Writer) (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return exitRefused, err
	}
	cmd := exec.Command(self, "-replica", strconv.Itoa(replica), "-brokers", strings.Join(brokers, ","), "-data", o.data,
		"-input", o.input, "-store", o.store, "-bad-input", o.badInput, "-v="+strconv.FormatBool(o.verbose))
	cmd.Stderr = stderr
	cmd.WaitDelay = time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return exitRefused, err
	}
	if err := cmd.Start(); err != nil {
		return exitRefused, err
	}
	if o.verbose {
		fmt.Fprintf(stderr, "worker process %d has pid %d\n", replica, cmd.Process.Pid)
	}
	stopped := context.AfterFunc(ctx, func() { stdin.Close() })
	defer stopped()
	err = cmd.Wait()
	return cmd.ProcessState.ExitCode(), err
}

// lineWriter lets the parent and its children write to one place.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
