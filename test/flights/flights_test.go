//go:build peers

package flights

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/test/peers"
)

// job is a command line of the flights job.
type job struct {
	bin  string
	args []string
	env  []string
}

func (j job) start(t *testing.T, workers int) *peers.Process {
	t.Helper()
	cmd := exec.Command(j.bin, append([]string{"-v", "-workers", strconv.Itoa(workers)}, j.args...)...)
	cmd.Env = append(os.Environ(), j.env...)
	return peers.Start(t, "01-flights", cmd)
}

// mustEnd runs the job to its end.
func (j job) mustEnd(t *testing.T, workers int) string {
	t.Helper()
	p := j.start(t, workers)
	if err := p.Wait(); err != nil {
		t.Fatalf("the job ended with %v:\n%s", err, p.Output())
	}
	return p.Output()
}

func TestOnApacheKafka(t *testing.T) {
	bin := peers.Binary(t, "./examples/01-flights")
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			k := peers.StartApacheKafka(t)
			data := t.TempDir()
			j := job{bin: bin, args: []string{"-data", data, "-brokers", k.Addr}}
			j.mustEnd(t, workers)
			check(t, k.Addr, folder(t, data), partitions)
			j.mustEnd(t, 4-workers)
			check(t, k.Addr, folder(t, data), partitions)
		})
	}
}

func TestKilledOnApacheKafka(t *testing.T) {
	k := peers.StartApacheKafka(t)
	data := t.TempDir()
	j := job{bin: peers.Binary(t, "./examples/01-flights"), args: []string{"-data", data, "-brokers", k.Addr}}
	rng := rand.New(rand.NewPCG(7, 7))
	for _, workers := range []int{1, 3, 2} {
		killAfter(t, j.start(t, workers), time.Duration(rng.IntN(800))*time.Millisecond)
	}
	j.mustEnd(t, 3)
	check(t, k.Addr, folder(t, data), 4*partitions)
}

// killAfter lets a job get its tasks, waits a little and sends SIGKILL, unless it has ended by then.
func killAfter(t *testing.T, p *peers.Process, d time.Duration) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Wait()
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var kill <-chan time.Time
	for {
		select {
		case <-ended:
			return
		case <-kill:
			p.Kill()
			return
		case <-tick.C:
			if kill == nil && strings.Contains(p.Output(), "tasks assigned") {
				kill = time.After(d)
			}
		}
	}
}

func TestKilledAndRunAgain(t *testing.T) {
	bin := peers.Binary(t, "./examples/01-flights")
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			data := t.TempDir()
			durability := []string{"fsync", "write"}[seed%2]
			j := job{bin: bin, args: []string{"-data", data, "-durability", durability}}
			for range 4 {
				killAfter(t, j.start(t, 1+rng.IntN(3)), time.Duration(rng.IntN(400))*time.Millisecond)
			}
			j.mustEnd(t, 1+rng.IntN(3))
			checkData(t, data, 5*partitions)
		})
	}
}

var childPid = regexp.MustCompile(`worker process (\d+) has pid (\d+)`)

// TestChildrenDieAndComeBack kills worker processes while their parent lives.
func TestChildrenDieAndComeBack(t *testing.T) {
	data := t.TempDir()
	j := job{bin: peers.Binary(t, "./examples/01-flights"), args: []string{"-data", data}}
	p := j.start(t, 3)
	for kills := range 4 {
		m := childPid.FindStringSubmatch(p.WaitLine(t, "has pid"))
		if m == nil || kills == 1 {
			continue
		}
		pid, _ := strconv.Atoi(m[2])
		<-time.After(time.Duration(kills*50) * time.Millisecond)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			t.Fatal(err)
		}
	}
	if err := p.Wait(); err != nil {
		t.Fatalf("the job ended with %v:\n%s", err, p.Output())
	}
	if !strings.Contains(p.Output(), "starting it again") {
		t.Error("no child was started again")
	}
	checkData(t, data, 5*partitions)
}

// TestChildrenEndWithTheirParent: nothing is left behind that could work on.
func TestChildrenEndWithTheirParent(t *testing.T) {
	j := job{bin: peers.Binary(t, "./examples/01-flights"), args: []string{"-data", t.TempDir()}}
	p := j.start(t, 2)
	var pids []int
	for range 2 {
		pid, _ := strconv.Atoi(childPid.FindStringSubmatch(p.WaitLine(t, "has pid"))[2])
		pids = append(pids, pid)
	}
	p.Kill()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(pids) > 0 {
		if gone(pids[0]) {
			pids = pids[1:]
			continue
		}
		select {
		case <-deadline:
			t.Fatalf("process %d outlives its parent", pids[0])
		case <-tick.C:
		}
	}
}

// gone reports whether a process has ended; its parent may not have collected it.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// TestPausedWorkerIsFenced stops a worker process until others have its tasks, and lets it go on.
func TestPausedWorkerIsFenced(t *testing.T) {
	b := peers.StartBroker(t, t.TempDir())
	data := t.TempDir()
	bin := peers.Binary(t, "./examples/01-flights")
	worker := func(replica string) *peers.Process {
		cmd := exec.Command(bin, "-replica", replica, "-brokers", b.Addr, "-data", data, "-v")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stdin.Close() })
		return peers.Start(t, "worker "+replica, cmd)
	}
	zombie := worker("0")
	zombie.WaitLine(t, "tasks assigned")
	if err := syscall.Kill(zombie.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	heir := worker("0")
	if err := heir.Wait(); err != nil {
		t.Fatalf("the heir ended with %v:\n%s", err, heir.Output())
	}
	if err := syscall.Kill(zombie.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_ = zombie.Wait() // it finds the job finished, or itself fenced
	check(t, b.Addr, folder(t, data), 2*partitions)
}

// TestBrokerDies kills the broker under a job and starts it again.
func TestBrokerDies(t *testing.T) {
	b := peers.StartBroker(t, t.TempDir())
	data := t.TempDir()
	j := job{bin: peers.Binary(t, "./examples/01-flights"), args: []string{"-data", data, "-brokers", b.Addr}}
	p := j.start(t, 3)
	for i := range 3 {
		p.WaitLine(t, "tasks assigned")
		<-time.After(time.Duration(i*70) * time.Millisecond)
		b.Kill()
		b.Again(t)
	}
	if err := p.Wait(); err != nil {
		t.Fatalf("the job ended with %v:\n%s", err, p.Output())
	}
	check(t, b.Addr, folder(t, data), 5*partitions)
}

func TestWithAzurite(t *testing.T) {
	a := startAzurite(t)
	data := t.TempDir()
	url := fmt.Sprintf("azblob://%s/flights/out", blob.AzuriteAccount)
	j := job{
		bin: peers.Binary(t, "./examples/01-flights"), args: []string{"-data", data, "-store", url},
		env: []string{blob.EnvKey + "=" + blob.AzuriteKey, blob.EnvEndpoint + "=" + a},
	}
	killAfter(t, j.start(t, 2), 200*time.Millisecond)
	j.mustEnd(t, 3)
	store, err := blob.OpenStore(url, blob.WithEnv(func(name string) string {
		return map[string]string{blob.EnvKey: blob.AzuriteKey, blob.EnvEndpoint: a}[name]
	}))
	if err != nil {
		t.Fatal(err)
	}
	b := peers.StartBroker(t, filepath.Join(data, "broker"))
	check(t, b.Addr, store, 2*partitions)
}

// TestWrongStore: the message says what is wrong and what to do, and nothing is lost: with the right store it goes on.
func TestWrongStore(t *testing.T) {
	a := startAzurite(t)
	data := t.TempDir()
	bin := peers.Binary(t, "./examples/01-flights")
	url := fmt.Sprintf("azblob://%s/flights/out", blob.AzuriteAccount)
	f := func(url, key, endpoint string, wants ...string) {
		t.Helper()
		j := job{bin: bin, args: []string{"-data", data, "-store", url}, env: []string{blob.EnvKey + "=" + key, blob.EnvEndpoint + "=" + endpoint}}
		p := j.start(t, 1)
		if err := p.Wait(); err == nil {
			t.Errorf("store %s was accepted", url)
		}
		for _, want := range wants {
			if !strings.Contains(p.Output(), want) {
				t.Errorf("nothing of %q in:\n%s", want, p.Output())
			}
		}
	}
	refused := fmt.Sprintf("http://127.0.0.1:%d/%s", peers.FreePort(t), blob.AzuriteAccount)
	f(url, blob.AzuriteKey, refused, "refused")
	f(url, "bm90IHRoZSBrZXk=", a, "key")
	f(url+"?create=false", blob.AzuriteKey, a, "flights")
	j := job{bin: bin, args: []string{"-data", data, "-store", url}, env: []string{blob.EnvKey + "=" + blob.AzuriteKey, blob.EnvEndpoint + "=" + a}}
	j.mustEnd(t, 1)
}
