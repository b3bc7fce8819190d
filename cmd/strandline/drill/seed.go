package drill

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fromHeader carries, in the output, which record of the source a record was made of.
const fromHeader = "from"

// keyOf names the key of a number.
func keyOf(n int64) []byte { return fmt.Appendf(nil, "k%09d", n) }

// numberOf is the number of a key, or false if it is none of total.
func numberOf(key []byte, total int64) (int64, bool) {
	if len(key) < 2 || key[0] != 'k' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(key[1:]), 10, 64)
	return n, err == nil && n >= 0 && n < total && string(keyOf(n)) == string(key)
}

// valueOf is what belongs to a key and to no other.
func valueOf(key []byte) []byte {
	return fmt.Appendf(nil, "%s:%x", key, sha256.Sum256(key))
}

// seed makes the topics and fills the source. The broker lives meanwhile.
func (d *drill) seed(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	made, err := d.admin.CreateTopics(ctx, d.Partitions, 1, nil, d.source(), d.output())
	if err = errors.Join(err, made.Error()); err != nil {
		return fmt.Errorf("create topics %s and %s: %w", d.source(), d.output(), err)
	}
	if err := d.fill(ctx, stuckAfter); err != nil {
		return fmt.Errorf("fill %s: %w", d.source(), err)
	}
	d.ends = make([]int64, d.Partitions)
	ends, err := d.admin.ListEndOffsets(ctx, d.source())
	if err = errors.Join(err, ends.Error()); err != nil {
		return fmt.Errorf("ends of %s: %w", d.source(), err)
	}
	var sum int64
	ends.Each(func(o kadm.ListedOffset) {
		if o.Partition >= 0 && o.Partition < d.Partitions {
			d.ends[o.Partition] = o.Offset
			sum += o.Offset
		}
	})
	if sum != d.Records {
		return &FailedError{What: fmt.Sprintf("the source holds %d records after %d were acknowledged, without any kill", sum, d.Records)}
	}
	d.screen.line("%8s  %d records seeded into %s", seconds(time.Since(began)), d.Records, d.source())
	return nil
}

// fill writes every key once. It gives up when the broker acknowledges nothing for patience.
func (d *drill) fill(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client, err := kgo.NewClient(clientOptions(d.target.addrs, kgo.DefaultProduceTopic(d.source()), kgo.ProducerLinger(5*time.Millisecond))...)
	if err != nil {
		return err
	}
	defer client.Close()
	stuck := time.AfterFunc(patience, func() {
		cancel(fmt.Errorf("stuck: %d of %d records are acknowledged, and none for %v", d.seeded.Load(), d.Records, patience))
	})
	defer stuck.Stop()
	for n := int64(0); n < d.Records && ctx.Err() == nil; n++ {
		key := keyOf(n)
		client.Produce(ctx, &kgo.Record{Key: key, Value: valueOf(key)}, func(_ *kgo.Record, err error) {
			if err != nil {
				cancel(err)
				return
			}
			d.seeded.Add(1)
			stuck.Reset(patience)
		})
	}
	err = client.Flush(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
