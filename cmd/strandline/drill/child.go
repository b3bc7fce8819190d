package drill

import (
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// outputKept bounds what is kept of a child's output.
const outputKept = 32 << 10

// child is a process that the drill started, with its process group where there are any.
type child struct {
	cmd    *exec.Cmd
	ended  chan struct{} // closed when it has ended; err is set then
	err    error
	killed bool
	output tail
}

func startChild(command []string) (*child, error) {
	c := &child{cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = &c.output, &c.output
	// What a killed command leaves behind may hold its output open.
	c.cmd.WaitDelay = time.Second
	isolate(c.cmd)
	started := make(chan error)
	go func() {
		// The kernel kills a child when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
			close(c.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// kill ends it, with SIGKILL where there are signals, and waits for its end. It signals once: the number of a group that is
// gone may become another's.
func (c *child) kill() {
	if !c.killed {
		c.killed = true
		killAll(c.cmd)
	}
	<-c.ended
}

// tail keeps the newest part of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p[max(0, len(p)-outputKept):]...)
	if len(t.b) > 2*outputKept {
		t.b = append(t.b[:0], t.b[len(t.b)-outputKept:]...)
	}
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b[max(0, len(t.b)-outputKept):])
}
