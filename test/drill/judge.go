//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/stream/blob"
)

const (
	// settleDeadline is how long open transactions of those who died may take to end: their timeout, and a little.
	settleDeadline = 30 * time.Second
	askEvery       = 50 * time.Millisecond
	readDeadline   = 30 * time.Second

	listTransactions = 66 // the API key
)

// judge looks at what a round has left.
type judge struct {
	r     *round
	store blob.Store
}

func newJudge(r *round, store blob.Store) *judge { return &judge{r, store} }

// all makes every check and returns everything that is wrong.
func (j *judge) all(ctx context.Context) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(j.r.brokers), kgo.RetryTimeout(readDeadline))
	if err != nil {
		return err
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	topics, err := j.topics(ctx, admin)
	if err != nil {
		return err
	}
	errs := []error{
		settled(ctx, "open transactions", func(ctx context.Context) (string, error) { return j.openTransactions(ctx, admin) }),
		settled(ctx, "last stable offsets", func(ctx context.Context) (string, error) { return unstable(ctx, admin, topics) }),
	}
	rows, err := j.topicRows(ctx, admin)
	errs = append(errs, err, j.same("the topic", rows))
	rows, err = j.blobRows(ctx)
	errs = append(errs, err, j.same("the blobs", rows))
	return errors.Join(append(errs, j.offsets(ctx, admin))...)
}

// topics are those of the job.
func (j *judge) topics(ctx context.Context, admin *kadm.Client) ([]string, error) {
	all, err := admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(all.Names(), func(name string) bool {
		return name != j.r.resultTopic() && name != j.r.jobName() && !strings.HasPrefix(name, j.r.jobName()+"-")
	})
	if len(names) < 5 {
		return nil, fmt.Errorf("the job has only the topics %v", names)
	}
	return names, nil
}

// settled asks until nothing is wrong.
func settled(ctx context.Context, what string, f func(context.Context) (string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, settleDeadline)
	defer cancel()
	for {
		wrong, err := f(ctx)
		if wrong == "" && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s, after %v: %s %w", what, settleDeadline, wrong, err)
		case <-time.After(askEvery):
		}
	}
}

// openTransactions asks the coordinator, if the broker serves ListTransactions. The last stable offsets and the stable
// committed offsets show open transactions without it.
func (j *judge) openTransactions(ctx context.Context, admin *kadm.Client) (string, error) {
	versions, err := admin.ApiVersions(ctx)
	if err != nil {
		return "", err
	}
	for _, v := range versions {
		if _, serves := v.KeyMaxVersion(listTransactions); !serves {
			return "", v.Err
		}
	}
	list, err := admin.ListTransactions(ctx, nil, []string{"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
	if err != nil {
		return "", err
	}
	var open []string
	for _, t := range list.Sorted() {
		if strings.HasPrefix(t.TxnID, j.r.jobName()+"-") {
			open = append(open, t.TxnID+" is "+t.State)
		}
	}
	return strings.Join(open, ", "), nil
}

// unstable names the partitions whose last stable offset is not the high watermark.
func unstable(ctx context.Context, admin *kadm.Client, topics []string) (string, error) {
	stable, err := admin.ListCommittedOffsets(ctx, topics...)
	if err = errors.Join(err, stable.Error()); err != nil {
		return "", err
	}
	ends, err := admin.ListEndOffsets(ctx, topics...)
	if err = errors.Join(err, ends.Error()); err != nil {
		return "", err
	}
	var open []string
	ends.Each(func(end kadm.ListedOffset) {
		if at, ok := stable.Lookup(end.Topic, end.Partition); !ok || at.Offset != end.Offset {
			open = append(open, fmt.Sprintf("%s/%d has LSO %d and high watermark %d", end.Topic, end.Partition, at.Offset, end.Offset))
		}
	})
	return strings.Join(open, ", "), nil
}

// same compares rows with what the job must give, each once.
func (j *judge) same(what string, rows []row) error {
	seen := make(map[row]int, len(rows))
	var foreign, doubled, missing []string
	for _, r := range rows {
		if seen[r]++; seen[r] > 1 {
			doubled = append(doubled, fmt.Sprint(r))
		}
		if !j.r.want[r] {
			foreign = append(foreign, fmt.Sprint(r))
		}
	}
	for r := range j.r.want {
		if seen[r] == 0 {
			missing = append(missing, fmt.Sprint(r))
		}
	}
	if len(foreign)+len(doubled)+len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%s has %d rows, want %d: %s, %s, %s", what, len(rows), len(j.r.want),
		some("missing", missing), some("doubled", doubled), some("wrong", foreign))
}

func some(what string, rows []string) string {
	if len(rows) == 0 {
		return "none " + what
	}
	slices.Sort(rows)
	return fmt.Sprintf("%d %s, such as %s", len(rows), what, strings.Join(rows[:min(3, len(rows))], " "))
}

// topicRows reads the result as a read_committed consumer.
func (j *judge) topicRows(ctx context.Context, admin *kadm.Client) (rows []row, err error) {
	topic := j.r.resultTopic()
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	from := make(map[string]map[int32]int64)
	starts.Each(func(o kadm.ListedOffset) { put(from, o.Topic, o.Partition, o.Offset) })
	err = j.read(ctx, admin, from, func(r *kgo.Record) error {
		var one row
		if err := json.Unmarshal(r.Value, &one); err != nil || string(r.Key) != one.Origin {
			return fmt.Errorf("a record with key %q and value %q: %w", r.Key, r.Value, err)
		}
		rows = append(rows, one)
		return nil
	})
	return rows, err
}

func put(m map[string]map[int32]int64, topic string, partition int32, offset int64) {
	if m[topic] == nil {
		m[topic] = make(map[int32]int64)
	}
	m[topic][partition] = offset
}

// read gives f every committed record from the offsets to the ends. Markers are kept while it reads, because the last
// offset of a partition is that of one.
func (j *judge) read(ctx context.Context, admin *kadm.Client, from map[string]map[int32]int64, f func(*kgo.Record) error) error {
	var topics []string
	for topic := range from {
		topics = append(topics, topic)
	}
	ends, err := admin.ListEndOffsets(ctx, topics...)
	if err = errors.Join(err, ends.Error()); err != nil {
		return err
	}
	offsets, left := make(map[string]map[int32]kgo.Offset), make(map[string]map[int32]int64)
	for topic, partitions := range from {
		for p, at := range partitions {
			end, ok := ends.Lookup(topic, p)
			if !ok {
				return fmt.Errorf("%s/%d has no end", topic, p)
			}
			if at >= end.Offset {
				continue
			}
			if offsets[topic] == nil {
				offsets[topic] = make(map[int32]kgo.Offset)
			}
			offsets[topic][p] = kgo.NewOffset().At(at)
			put(left, topic, p, end.Offset)
		}
	}
	if len(left) == 0 {
		return nil
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(j.r.brokers), kgo.ConsumePartitions(offsets), kgo.KeepControlRecords(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	for len(left) > 0 {
		fetches := c.PollFetches(ctx)
		if err := errors.Join(fetches.Err(), ctx.Err()); err != nil {
			return fmt.Errorf("reading up to %v: %w", left, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() && err == nil {
				err = f(r)
			}
			if end, ok := left[r.Topic][r.Partition]; ok && r.Offset+1 >= end {
				if delete(left[r.Topic], r.Partition); len(left[r.Topic]) == 0 {
					delete(left, r.Topic)
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// blobRows reads all blobs of the result.
func (j *judge) blobRows(ctx context.Context) (rows []row, err error) {
	var names []string
	err = j.store.List(ctx, j.r.resultTopic()+"/", func(e blob.Entry) error {
		if path.Ext(e.Name) == ".avro" {
			names = append(names, e.Name)
		}
		return nil
	})
	for _, name := range names {
		if err == nil {
			err = blob.ReadRows(ctx, j.store, name, func(r row) error { rows = append(rows, r); return nil })
		}
	}
	return rows, err
}

// offsets checks that the group has an offset for every partition of every input, with nothing pending, and that no
// record lies behind one.
func (j *judge) offsets(ctx context.Context, admin *kadm.Client) error {
	committed, err := admin.FetchOffsets(kadm.RequireStable(ctx), j.r.jobName())
	if err = errors.Join(err, committed.Error()); err != nil {
		return fmt.Errorf("committed offsets: %w", err)
	}
	from := make(map[string]map[int32]int64)
	committed.Each(func(o kadm.OffsetResponse) {
		if !strings.HasSuffix(o.Topic, "-splits") { // their positions count lines, not records
			put(from, o.Topic, o.Partition, o.At)
		}
	})
	var errs []error
	for topic, offsets := range from {
		if len(offsets) != partitions {
			errs = append(errs, fmt.Errorf("the group has offsets for %d of %d partitions of %s", len(offsets), partitions, topic))
		}
	}
	if len(from) < 2 {
		errs = append(errs, fmt.Errorf("the group has offsets for only %d topics", len(from)))
	}
	behind := 0
	err = j.read(ctx, admin, from, func(r *kgo.Record) error {
		if behind++; behind == 1 {
			errs = append(errs, fmt.Errorf("a record at %s/%d@%d, but the group is at %d", r.Topic, r.Partition, r.Offset, from[r.Topic][r.Partition]))
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}
