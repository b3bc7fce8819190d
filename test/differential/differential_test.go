//go:build peers

package differential

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/strandline-io/strandline/test/peers"
)

var (
	seedFlag     = flag.Uint64("seed", 1, "seed of the first episode")
	stepsFlag    = flag.Int("steps", 12000, "steps in all episodes together")
	episodesFlag = flag.Int("episodes", 1<<30, "episodes at most")
	workersFlag  = flag.Int("workers", 2, "episodes at the same time")
	failuresFlag = flag.Int("failures", 5, "failed episodes after which the run ends")
	scriptsFlag  = flag.String("scripts", "", "folder for the scripts of failed episodes")
	kafkaFlag    = flag.String("kafka", "", "address of a running Apache Kafka, instead of a new one")
)

// episodeSteps is the length of one episode.
const episodeSteps = 300

// kafkaSettings make Apache Kafka quick and leave no choice to its clock.
var kafkaSettings = []string{
	fmt.Sprintf("offsets.topic.num.partitions=%d", offsetsPartitions), "transaction.state.log.num.partitions=4", "group.coordinator.append.linger.ms=0",
	"log.retention.check.interval.ms=86400000", "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
	"group.max.session.timeout.ms=1800000", "num.io.threads=4", "num.network.threads=2",
}

func TestDifferential(t *testing.T) {
	kafka := *kafkaFlag
	if kafka == "" {
		kafka = peers.StartApacheKafka(t, kafkaSettings...).Addr
	}
	ours := peers.StartBroker(t, t.TempDir())
	r := &run{ours: ours.Addr, kafka: kafka, intended: map[string]int{}}
	start := time.Now()
	var workers sync.WaitGroup
	for range *workersFlag {
		workers.Go(func() { r.work(t) })
	}
	workers.Wait()
	t.Logf("%d steps in %d episodes, asked again %d times, %v", r.steps.Load(), r.episodes.Load(), r.retries.Load(), time.Since(start))
	for name, n := range r.intended {
		t.Logf("intended difference met %d times: %s", n, name)
	}
}

// run counts over all episodes.
type run struct {
	ours, kafka             string
	steps, episodes, failed atomic.Int64
	retries                 atomic.Int64

	mu       sync.Mutex
	intended map[string]int
}

func (r *run) work(t *testing.T) {
	for {
		n := r.episodes.Add(1)
		if n > int64(*episodesFlag) || r.steps.Load() >= int64(*stepsFlag) || r.failed.Load() >= int64(*failuresFlag) {
			r.episodes.Add(-1)
			return
		}
		r.episode(t, *seedFlag+uint64(n)-1)
	}
}

// episode runs one script to its end or to the first difference.
func (r *run) episode(t *testing.T, seed uint64) {
	d := &driver{ours: newSide("Strandline", r.ours), kafka: newSide("Apache Kafka", r.kafka), intended: map[string]int{}}
	defer d.ours.close()
	defer d.kafka.close()
	d.prefix = fmt.Sprintf("e%d-%d-", seed, time.Now().UnixMilli()%1000000)
	w := newWorld(d.prefix, rand.New(rand.NewPCG(seed, 7)))
	err := w.begin(d)
	steps := 0
	for ; err == nil && steps < episodeSteps; steps++ {
		err = d.do(w.next())
	}
	if err == nil {
		err = w.finish(d)
	}
	r.steps.Add(int64(steps))
	r.retries.Add(int64(d.retries))
	r.mu.Lock()
	d.tally(r.intended)
	r.mu.Unlock()
	if err == nil {
		return
	}
	r.failed.Add(1)
	script := strings.Join(d.script, "\n")
	if *scriptsFlag != "" {
		if err := os.WriteFile(fmt.Sprintf("%s/seed-%d.txt", *scriptsFlag, seed), []byte(script+"\n"), 0o644); err != nil {
			t.Error(err)
		}
	}
	t.Errorf("seed %d, step %d (-seed %d -episodes 1):\n%s\n\t%v", seed, steps, seed, script, err)
}
