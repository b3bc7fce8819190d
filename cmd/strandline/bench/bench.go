// Package bench measures any Kafka-protocol broker with franz-go's client: produce, consume and transactions. It
// makes and removes its own topic unless it is given one.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Config is what all measurements share. Zero values take the defaults in the comments; Records, SizeBytes and
// Partitions have none and must be 1 or more.
type Config struct {
	Brokers     []string
	Topic       string // default: a fresh topic, removed afterwards
	Partitions  int32  // of a fresh topic
	Records     int64
	SizeBytes   int    // of a value
	Producers   int    // clients; default 1
	Rate        int64  // records per second over all producers; 0 is as fast as possible
	Acks        string // "all" (default), "1", "0"
	Compression string // "none" (default), "gzip", "snappy", "lz4", "zstd"
	BatchBytes  int32  // default 1,000,012, the client's
	LingerMs    int    // default 0
	InFlight    int    // records in flight per producer; default 10,000
	Committed   bool   // consume: read_committed
	PerTxn      int    // txn: records per transaction; default 10
}

// validate refuses what would silently mean something else.
func (c Config) validate() error {
	for _, v := range []struct {
		name string
		got  int64
		low  int64
	}{
		{"records", c.Records, 1}, {"size", int64(c.SizeBytes), 1}, {"producers", int64(c.Producers), 0},
		{"records per transaction", int64(c.PerTxn), 0}, {"partitions", int64(c.Partitions), 1}, {"rate", c.Rate, 0},
		{"batch bytes", int64(c.BatchBytes), 0}, {"linger", int64(c.LingerMs), 0}, {"records in flight", int64(c.InFlight), 0},
	} {
		if v.got < v.low {
			return fmt.Errorf("%s: %d is not possible, use %d or more", v.name, v.got, v.low)
		}
	}
	return nil
}

func (c Config) orDefaults() Config {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&c.Producers, 1)
	set(&c.InFlight, 10_000)
	set(&c.PerTxn, 10)
	if c.BatchBytes <= 0 {
		c.BatchBytes = 1_000_012
	}
	return c
}

// answerWithin bounds the wait for a broker's first answer.
const answerWithin = 10 * time.Second

// Result is one measurement. Latencies are milliseconds from the moment a record or a transaction was due: with a
// rate, the moment the rate asked for it, so that a stalled broker is charged for everything that it delayed.
type Result struct {
	Kind         string  `json:"kind"`
	Records      int64   `json:"records"`
	Bytes        int64   `json:"bytes"`
	Seconds      float64 `json:"seconds"`
	RecordsPerS  float64 `json:"records_per_second"`
	MBPerS       float64 `json:"mb_per_second"`
	Transactions int64   `json:"transactions,omitempty"`
	TxnPerS      float64 `json:"transactions_per_second,omitempty"`
	P50Ms        float64 `json:"p50_ms,omitempty"`
	P99Ms        float64 `json:"p99_ms,omitempty"`
	P999Ms       float64 `json:"p999_ms,omitempty"`
	MaxMs        float64 `json:"max_ms,omitempty"`
}

func newResult(kind string, records, bytes int64, took time.Duration, h *histogram) Result {
	s := took.Seconds()
	r := Result{
		Kind: kind, Records: records, Bytes: bytes, Seconds: s,
		RecordsPerS: float64(records) / s, MBPerS: float64(bytes) / s / 1e6,
	}
	if h != nil && h.total > 0 {
		r.P50Ms, r.P99Ms, r.P999Ms = h.quantileMs(0.5), h.quantileMs(0.99), h.quantileMs(0.999)
		r.MaxMs = float64(h.maxUs) / 1000
	}
	return r
}

// Print writes the result as a table, or as one JSON object.
func (r Result) Print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "records\t%d\n", r.Records)
	fmt.Fprintf(t, "seconds\t%.2f\n", r.Seconds)
	fmt.Fprintf(t, "records/s\t%.0f\n", r.RecordsPerS)
	fmt.Fprintf(t, "MB/s\t%.1f\n", r.MBPerS)
	if r.Transactions > 0 {
		fmt.Fprintf(t, "transactions\t%d\n", r.Transactions)
		fmt.Fprintf(t, "transactions/s\t%.0f\n", r.TxnPerS)
	}
	if r.MaxMs > 0 {
		fmt.Fprintf(t, "p50 ms\t%.2f\n", r.P50Ms)
		fmt.Fprintf(t, "p99 ms\t%.2f\n", r.P99Ms)
		fmt.Fprintf(t, "p99.9 ms\t%.2f\n", r.P999Ms)
		fmt.Fprintf(t, "max ms\t%.2f\n", r.MaxMs)
	}
	return t.Flush()
}

// topic returns the topic to use and a call that removes it again if it was made here.
func (c Config) topic(ctx context.Context, kind string) (name string, remove func(), err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers...))
	if err != nil {
		return "", nil, err
	}
	admin := kadm.NewClient(client)
	bounded, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := client.Ping(bounded); err != nil {
		client.Close()
		return "", nil, fmt.Errorf("no broker answers at %s: %w; start one with `strandline serve`, or name another with --brokers",
			strings.Join(c.Brokers, ","), err)
	}
	if c.Topic != "" {
		defer client.Close()
		topics, err := admin.ListTopics(bounded, c.Topic)
		if err == nil {
			err = topics[c.Topic].Err
		}
		if err != nil {
			return "", nil, fmt.Errorf("topic %s: %w; create it with `strandline topic create %s`", c.Topic, err, c.Topic)
		}
		return c.Topic, func() {}, nil
	}
	name = fmt.Sprintf("bench-%s-%08x", kind, rand.Uint32())
	if _, err := admin.CreateTopic(ctx, c.Partitions, 1, nil, name); err != nil {
		client.Close()
		return "", nil, fmt.Errorf("create topic %s on %v: %w", name, c.Brokers, err)
	}
	return name, func() {
		// The measurement is over and ctx may have ended with it.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		admin.DeleteTopic(bounded, name)
		client.Close()
	}, nil
}

func (c Config) producerOpts(topic string) ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchMaxBytes(c.BatchBytes),
		kgo.ProducerLinger(time.Duration(c.LingerMs) * time.Millisecond),
		kgo.MaxBufferedRecords(c.InFlight),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()),
	}
	if c.BatchBytes > 64<<10 && c.Rate == 0 {
		opts[len(opts)-1] = kgo.RecordPartitioner(kgo.UniformBytesPartitioner(int(c.BatchBytes), true, true, nil))
	}
	codecs := map[string]kgo.CompressionCodec{
		"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[c.Compression]
	if !ok {
		return nil, fmt.Errorf("unknown compression %q: use none, gzip, snappy, lz4 or zstd", c.Compression)
	}
	opts = append(opts, kgo.ProducerBatchCompression(codec))
	switch c.Acks {
	case "", "all", "-1":
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, fmt.Errorf("unknown acks %q: use all, 1 or 0", c.Acks)
	}
	return opts, nil
}

// payload is a value that no codec can shrink.
func payload(size int) []byte {
	v := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(v) // never fails
	return v
}

// join returns the first error that is more than the end of the context.
func join(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return errors.Join(errs...)
}
