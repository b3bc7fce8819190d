//go:build peers

package differential

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
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
	workersFlag  = flag.Int("workers", 8, "episodes at the same time: most of an episode is waiting for Apache Kafka")
	failuresFlag = flag.Int("failures", 5, "failed episodes after which the run ends")
	scriptsFlag  = flag.String("scripts", "", "folder for the scripts of failed episodes")
	restartsFlag = flag.Int("restarts", 2, "restarts of both brokers in TestDifferentialRestart")
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
	r := &run{ours: ours.Addr, kafka: kafka, first: *seedFlag, intended: map[string]int{}, sent: map[request]int{}, starts: 1}
	start := time.Now()
	var workers sync.WaitGroup
	for range *workersFlag {
		workers.Go(func() { r.work(t) })
	}
	workers.Wait()
	r.report(t, time.Since(start))
	text, missing := coverage(r.sent)
	t.Logf("compared: %s", text)
	if len(missing) > 0 && r.steps.Load() >= coveredFrom {
		t.Errorf("served and never sent: %s", strings.Join(missing, ", "))
	}
}

// run counts over all episodes.
type run struct {
	ours, kafka             string
	first                   uint64 // seed
	starts                  int32  // of Strandline
	steps, episodes, failed atomic.Int64
	retries                 atomic.Int64

	mu        sync.Mutex
	intended  map[string]int
	sent      map[request]int
	differing []uint64 // seeds
}

func (r *run) work(t *testing.T) {
	for {
		n := r.episodes.Add(1)
		if n > int64(*episodesFlag) || r.steps.Load() >= int64(*stepsFlag) || r.failed.Load() >= int64(*failuresFlag) {
			r.episodes.Add(-1)
			return
		}
		r.episode(t, r.first+uint64(n)-1)
	}
}

// episode runs one script to its end or to the first difference.
func (r *run) episode(t *testing.T, seed uint64) {
	e := r.begin(seed)
	defer e.close()
	e.walk(episodeSteps)
	e.finish()
	r.account(t, e)
}

// episode is one script and how far it has come.
type episode struct {
	*driver
	seed  uint64
	world *world
	steps int
	err   error // the first difference
}

func (r *run) begin(seed uint64) *episode {
	d := &driver{ours: newSide("Strandline", r.ours), kafka: newSide("Apache Kafka", r.kafka), intended: map[string]int{}, sent: map[request]int{}, patience: settleWithin}
	d.prefix = fmt.Sprintf("e%d-%d-", seed, time.Now().UnixMilli()%1000000)
	e := &episode{driver: d, seed: seed, world: newWorld(d.prefix, rand.New(rand.NewPCG(seed, 7)))}
	e.world.starts = r.starts
	e.err = e.world.begin(d)
	return e
}

func (e *episode) close() {
	e.ours.close()
	e.kafka.close()
}

// walk does steps, and then what they left to be done at once.
func (e *episode) walk(steps int) {
	for n := 0; e.err == nil && (n < steps || len(e.world.queue) > 0); n++ {
		e.err = e.do(e.world.next())
		e.steps++
	}
}

func (e *episode) finish() {
	if e.err == nil {
		e.err = e.world.finish(e.driver)
	}
}

// account adds an episode that is over to the run.
func (r *run) account(t *testing.T, e *episode) {
	r.steps.Add(int64(e.steps))
	r.retries.Add(int64(e.retries))
	r.mu.Lock()
	e.tally(r.intended, r.sent)
	if e.err != nil {
		r.differing = append(r.differing, e.seed)
	}
	r.mu.Unlock()
	if e.err == nil {
		return
	}
	r.failed.Add(1)
	script := strings.Join(e.script, "\n")
	if *scriptsFlag != "" {
		if err := os.WriteFile(fmt.Sprintf("%s/seed-%d.txt", *scriptsFlag, e.seed), []byte(script+"\n"), 0o644); err != nil {
			t.Error(err)
		}
	}
	t.Errorf("seed %d, step %d (-seed %d -episodes 1):\n%s\n\t%v", e.seed, e.steps, e.seed, script, e.err)
}

// report says what a run did.
func (r *run) report(t *testing.T, took time.Duration) {
	slices.Sort(r.differing)
	steps, episodes := r.steps.Load(), r.episodes.Load()
	line := fmt.Sprintf("%d steps in %d episodes, seeds %d to %d, %d with differences %d; Apache Kafka asked again %d times; %v, %d steps/s",
		steps, episodes, r.first, r.first+uint64(episodes)-1, len(r.differing), r.differing, r.retries.Load(), took.Round(time.Second), int64(float64(steps)/took.Seconds()))
	t.Log(line)
	for _, name := range slices.Sorted(maps.Keys(r.intended)) {
		t.Logf("allowed difference met %d times: %s", r.intended[name], name)
	}
}
