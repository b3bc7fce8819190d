package drill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// maxExamples bounds the keys that a failure names.
	maxExamples = 5
	// goneShown bounds the kills of which a failure tells.
	goneShown = 3
	// settleWait is how long the last transactions may stay open.
	settleWait = transactionTimeout + time.Minute
	// readWait is how long a reader may get nothing.
	readWait = time.Minute
)

// FailedError says that the broker broke its promise.
type FailedError struct{ What string }

func (e *FailedError) Error() string { return e.What }

// Found is what a read_committed reader found in a topic that should hold each of a number of keys once.
type Found struct {
	Records int64 // all of them
	Missing int64 // keys of which there was no record
	Doubled int64 // records of a key that had been seen before
	Altered int64 // records whose value is not their key's
	Foreign int64 // records of no known key

	// Examples are keys that are missing, doubled or altered, at most maxExamples of each kind, in order of appearance.
	MissingKeys, DoubledKeys, AlteredKeys []string
}

// OK reports whether every key was found once, as it was written.
func (f Found) OK() bool { return f.Missing == 0 && f.Doubled == 0 && f.Altered == 0 && f.Foreign == 0 }

// Read reads a topic, read_committed, from its start to its last stable offsets, and compares it with the keys of
// total records. Memory is a bit for each key.
func Read(ctx context.Context, addrs []string, topic string, total int64) (Found, error) {
	seen := make([]uint64, (total+63)/64)
	var f Found
	example := func(to *[]string, key []byte) {
		if len(*to) < maxExamples && !slices.Contains(*to, string(key)) {
			*to = append(*to, string(key))
		}
	}
	err := readTopic(ctx, addrs, topic, kgo.ReadCommitted(), func(r *kgo.Record) {
		f.Records++
		n, ok := numberOf(r.Key, total)
		if !ok {
			f.Foreign++
			return
		}
		if seen[n/64]&(1<<(n%64)) != 0 {
			f.Doubled++
			example(&f.DoubledKeys, r.Key)
		}
		seen[n/64] |= 1 << (n % 64)
		if !bytes.Equal(r.Value, valueOf(r.Key)) {
			f.Altered++
			example(&f.AlteredKeys, r.Key)
		}
	})
	for n := range total {
		if seen[n/64]&(1<<(n%64)) == 0 {
			f.Missing++
			example(&f.MissingKeys, keyOf(n))
		}
	}
	return f, err
}

// readTopic calls f for each record up to the ends that the topic has at this isolation when it begins.
func readTopic(ctx context.Context, addrs []string, topic string, isolation kgo.IsolationLevel, f func(*kgo.Record)) error {
	client, err := kgo.NewClient(clientOptions(addrs)...)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	list := admin.ListEndOffsets
	if isolation == kgo.ReadCommitted() {
		list = admin.ListCommittedOffsets
	}
	starts, startErr := admin.ListStartOffsets(ctx, topic)
	ends, endErr := list(ctx, topic)
	if err := errors.Join(startErr, endErr, starts.Error(), ends.Error()); err != nil {
		return fmt.Errorf("offsets of %s: %w", topic, err)
	}
	from, left := map[int32]kgo.Offset{}, map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if start, ok := starts.Lookup(topic, o.Partition); ok && o.Offset > start.Offset {
			from[o.Partition], left[o.Partition] = kgo.NewOffset().At(start.Offset), o.Offset
		}
	})
	if len(from) == 0 {
		return nil
	}
	// Markers are kept because the last offset of a partition is that of one.
	reader, err := kgo.NewClient(clientOptions(addrs, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords(), kgo.FetchMaxPartitionBytes(1<<20), kgo.FetchMaxBytes(8<<20))...)
	if err != nil {
		return err
	}
	defer reader.Close()
	for len(left) > 0 {
		poll, cancel := context.WithTimeout(ctx, readWait)
		fetches := reader.PollFetches(poll)
		cancel()
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read %s, %d partitions not at their end: %w", topic, len(left), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, ok := left[r.Partition]
			if ok && r.Offset < end && !r.Attrs.IsControl() {
				f(r)
			}
			if ok && r.Offset+1 >= end {
				delete(left, r.Partition)
			}
		})
	}
	return nil
}

// checks are what was judged at the end.
type checks []checked

type checked struct {
	what, got string
	held      bool
}

func (c checks) failed() error {
	var all []string
	for _, one := range c {
		if !one.held {
			all = append(all, one.what+": "+one.got)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &FailedError{What: strings.Join(all, "; ")}
}

// check judges what the broker holds.
func (d *drill) check(ctx context.Context) (checks, error) {
	d.screen.line("%8s  all moved, reading what the broker holds", seconds(time.Since(d.began)))
	var c checks
	add := func(what, got string, held bool) { c = append(c, checked{what, got, held}) }
	open := d.await(ctx, d.openPartitions)
	add("no open transaction: LSO = high watermark", orElse(open, fmt.Sprintf("in all %d partitions", 2*d.Partitions)), open == "")
	behind := d.await(ctx, d.behind)
	add("committed offsets of the group", orElse(behind, fmt.Sprintf("at the end of all %d partitions", d.Partitions)), behind == "")
	f, err := Read(ctx, d.target.addrs, d.output(), d.Records)
	if err != nil {
		// What was not read is not judged; what was, is.
		add("doubled, as far as it could be read", examples(f.Doubled, f.DoubledKeys), f.Doubled == 0)
		add("altered, as far as it could be read", examples(f.Altered, f.AlteredKeys), f.Altered == 0)
		add("of no known key, as far as it could be read", fmt.Sprint(f.Foreign), f.Foreign == 0)
		return c, err
	}
	add("keys, read_committed", fmt.Sprintf("%d of %d", d.Records-f.Missing, d.Records), f.Missing == 0)
	add("lost", examples(f.Missing, f.MissingKeys), f.Missing == 0)
	add("doubled", examples(f.Doubled, f.DoubledKeys), f.Doubled == 0)
	add("altered", examples(f.Altered, f.AlteredKeys), f.Altered == 0)
	add("of no known key", fmt.Sprint(f.Foreign), f.Foreign == 0)
	if !f.OK() {
		where, err := d.locate(ctx, slices.Concat(f.MissingKeys, f.DoubledKeys, f.AlteredKeys))
		if err != nil {
			where = err.Error()
		}
		d.screen.line("%s", where)
	}
	return c, ctx.Err()
}

// checkKills judges what was found after each kill.
func (d *drill) checkKills() checks {
	if len(d.kills) == 0 {
		return nil
	}
	what := "acknowledged before a kill, there after it"
	if len(d.gone) == 0 {
		return checks{{what, fmt.Sprintf("records and commits, after each of %d kills", len(d.kills)), true}}
	}
	shown := strings.Join(d.gone[:min(len(d.gone), goneShown)], "; ")
	if more := len(d.gone) - goneShown; more > 0 {
		shown += fmt.Sprintf("; and after %d more kills", more)
	}
	return checks{{what, shown, false}}
}

// goneSince says what a broker that was started again does not hold although it was acknowledged: records of the source, or
// the group's commits up to there. A broker that loses whole transactions, offsets and all, doubles nothing, and what it
// lost is moved again: a reader at the end would not see it.
func (d *drill) goneSince(ctx context.Context, committed []int64) string {
	var short []string
	unclear := d.await(ctx, func(ctx context.Context) (_ string, err error) {
		short, err = d.short(ctx, committed)
		return "", err
	})
	switch len(short) {
	case 0:
		return unclear
	case 1:
		return short[0]
	}
	return fmt.Sprintf("%s (and %d more such)", short[0], len(short)-1)
}

// short names the partitions that end, or where the group is, below what was acknowledged.
func (d *drill) short(ctx context.Context, committed []int64) ([]string, error) {
	ends, err := d.admin.ListEndOffsets(ctx, d.source())
	if err = errors.Join(err, ends.Error()); err != nil {
		return nil, fmt.Errorf("ends of %s: %w", d.source(), err)
	}
	var short []string
	for p, want := range d.ends {
		if end, ok := ends.Lookup(d.source(), int32(p)); !ok || end.Offset < want {
			short = append(short, fmt.Sprintf("%s/%d ends at %d, it was %d", d.source(), p, end.Offset, want))
		}
	}
	lower, err := d.lower(ctx, committed)
	if len(lower) > 0 {
		// On a broker that answers EndTxn before the markers are everywhere, the newest commits may be pending for a while.
		lower, err = d.lower(kadm.RequireStable(ctx), committed)
	}
	return append(short, lower...), err
}

// lower names the partitions where the group is below its commits.
func (d *drill) lower(ctx context.Context, committed []int64) (lower []string, err error) {
	offsets, err := d.admin.FetchOffsetsForTopics(ctx, d.name, d.source())
	if err != nil {
		return nil, err
	}
	for p, want := range committed {
		o, ok := offsets.Lookup(d.source(), int32(p))
		switch {
		case want == 0:
		case o.Err != nil:
			return nil, fmt.Errorf("partition %d: %w", p, o.Err)
		case !ok:
			lower = append(lower, fmt.Sprintf("the group has no offset in partition %d, it had committed %d", p, want))
		case o.At < want:
			lower = append(lower, fmt.Sprintf("the group is at %d in partition %d, it had committed %d", o.At, p, want))
		}
	}
	return lower, nil
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func examples(n int64, keys []string) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, such as %s", n, strings.Join(keys, " "))
}

// await asks until nothing is wrong, or for settleWait, and returns what is.
func (d *drill) await(ctx context.Context, f func(context.Context) (string, error)) string {
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	last := ""
	for {
		wrong, err := f(ctx)
		if err == nil && wrong == "" {
			return ""
		}
		if ctx.Err() == nil || last == "" {
			last = orElse(wrong, fmt.Sprint(err))
		}
		select {
		case <-ctx.Done():
			return last
		case <-tick.C:
		}
	}
}

// openPartitions names the partitions that an open transaction holds back.
func (d *drill) openPartitions(ctx context.Context) (string, error) {
	// The stable ones first: they are then never ahead.
	stable, err := d.admin.ListCommittedOffsets(ctx, d.source(), d.output())
	if err = errors.Join(err, stable.Error()); err != nil {
		return "", err
	}
	ends, err := d.admin.ListEndOffsets(ctx, d.source(), d.output())
	if err = errors.Join(err, ends.Error()); err != nil {
		return "", err
	}
	var open []string
	for _, topic := range []string{d.source(), d.output()} {
		for p := range d.Partitions {
			end, ok := ends.Lookup(topic, p)
			at, also := stable.Lookup(topic, p)
			if !ok || !also || at.Offset != end.Offset {
				open = append(open, fmt.Sprintf("%s/%d has LSO %d and high watermark %d", topic, p, at.Offset, end.Offset))
			}
		}
	}
	return strings.Join(open, ", "), nil
}

// behind names the partitions whose committed offset, with nothing pending, is not the end.
func (d *drill) behind(ctx context.Context) (string, error) {
	offsets, err := d.admin.FetchOffsetsForTopics(kadm.RequireStable(ctx), d.name, d.source())
	if err != nil {
		return "", err
	}
	var behind []string
	for p, end := range d.ends {
		o, ok := offsets.Lookup(d.source(), int32(p))
		switch {
		case end == 0:
		case !ok:
			behind = append(behind, fmt.Sprintf("partition %d has none, its end is %d", p, end))
		case o.Err != nil:
			behind = append(behind, fmt.Sprintf("partition %d: %v", p, o.Err))
		case o.At != end:
			behind = append(behind, fmt.Sprintf("partition %d is at %d, its end is %d", p, o.At, end))
		}
	}
	return strings.Join(behind, ", "), nil
}

// positions tells how far the group is.
func (d *drill) positions() string {
	var all []string
	for p := range d.moved {
		all = append(all, fmt.Sprintf("%d: %d of %d", p, d.moved[p].Load(), d.ends[p]))
	}
	return "partition " + strings.Join(all, ", ")
}

// locate tells where keys lie in the source and, committed or not, in the output.
func (d *drill) locate(ctx context.Context, keys []string) (string, error) {
	at := map[string][]string{}
	for _, topic := range []string{d.source(), d.output()} {
		for _, isolation := range []kgo.IsolationLevel{kgo.ReadUncommitted(), kgo.ReadCommitted()} {
			if topic == d.source() && isolation == kgo.ReadCommitted() {
				continue
			}
			err := readTopic(ctx, d.target.addrs, topic, isolation, func(r *kgo.Record) {
				key := string(r.Key)
				if !slices.Contains(keys, key) || len(at[key]) > 8*maxExamples {
					return
				}
				place := fmt.Sprintf("%s/%d@%d producer %d epoch %d", topic, r.Partition, r.Offset, r.ProducerID, r.ProducerEpoch)
				if isolation == kgo.ReadCommitted() {
					place = "committed " + place
				}
				at[key] = append(at[key], place)
			})
			if err != nil {
				return "", err
			}
		}
	}
	var lines []string
	for _, key := range keys {
		lines = append(lines, fmt.Sprintf("%s: %s", key, strings.Join(at[key], ", ")))
	}
	return strings.Join(lines, "\n"), nil
}
