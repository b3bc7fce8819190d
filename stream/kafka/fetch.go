package kafka

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/mutant"

	"github.com/strandline-io/strandline/internal/compress"
)

// Record is one record of a partition, committed unless it was read Uncommitted. Key and Value may be nil, which is not the same as
// empty. They belong to whoever holds the record; the reader does not reuse them.
type Record struct {
	TopicPartition
	Offset      int64
	TimestampMs int64
	Key, Value  []byte
	Headers     []Header
}

// Header is a record header.
type Header struct {
	Key   string
	Value []byte
}

// Batch is what one fetch told of one partition, also when it brought no record.
type Batch struct {
	TopicPartition
	// Token is the one given to Fetcher.Add, by which an owner tells batches of an earlier assignment.
	Token   uint64
	Records []Record
	// NextOffset is the position after the batch. Control records, aborted records and offsets that compaction removed
	// are behind it although they are not in Records, so that a trailing transaction marker is passed.
	NextOffset int64
	// LastStableOffset, HighWatermark and LogStartOffset are those of this answer. Where all of it was read,
	// NextOffset equals LastStableOffset; where besides nothing is open, that equals HighWatermark.
	LastStableOffset, HighWatermark, LogStartOffset int64
	// Err ends the partition: nothing more comes until it is added again. An *OffsetRangeError, a *MissingTopicError,
	// or damage.
	Err error
	// Unreachable is set, and nothing else, if the leader did not answer; the fetcher tries on. Such a batch is no
	// answer, so it says nothing about silence.
	Unreachable error
	// SizeBytes is about what the records hold in memory.
	SizeBytes int
}

// CaughtUp reports that the batch ends at the partition's end and that no transaction is open there.
func (b Batch) CaughtUp() bool {
	return b.Err == nil && b.Unreachable == nil && b.NextOffset == b.LastStableOffset && b.LastStableOffset == b.HighWatermark
}

// route is where a partition's leader is.
type route struct {
	leader  int32
	topicID [16]byte
}

// router remembers leaders; any error of a fetch that a move of the leader explains makes it ask again.
type router struct {
	// ids are the topic ids that are expected, by name; a topic of another id is a *RecreatedTopicError.
	ids map[string]string

	mu     sync.Mutex
	routes map[TopicPartition]route
}

// look finds the routes of tps, asking for the topics of those that are not known.
func (c *Client) look(ctx context.Context, r *router, tps []TopicPartition) (map[TopicPartition]route, error) {
	out := make(map[TopicPartition]route, len(tps))
	unknown := make(map[string]bool)
	r.mu.Lock()
	for _, tp := range tps {
		if rt, ok := r.routes[tp]; ok {
			out[tp] = rt
		} else {
			unknown[tp.Topic] = true
		}
	}
	r.mu.Unlock()
	if len(unknown) == 0 {
		return out, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	for _, t := range slices.Sorted(maps.Keys(unknown)) {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(t)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, c.link)
	if err != nil {
		return nil, fmt.Errorf("kafka: asking for leaders: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.routes == nil {
		r.routes = make(map[TopicPartition]route)
	}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		if t.ErrorCode == kerr.UnknownTopicOrPartition.Code {
			return nil, &MissingTopicError{Topic: *t.Topic}
		}
		if want, ok := r.ids[*t.Topic]; ok && want != hex.EncodeToString(t.TopicID[:]) {
			return nil, &RecreatedTopicError{Topic: *t.Topic, WantID: want, GotID: hex.EncodeToString(t.TopicID[:])}
		}
		for _, p := range t.Partitions {
			if p.Leader >= 0 {
				r.routes[TopicPartition{*t.Topic, p.Partition}] = route{p.Leader, t.TopicID}
			}
		}
	}
	for _, tp := range tps {
		if rt, ok := r.routes[tp]; ok {
			out[tp] = rt
		}
	}
	return out, nil
}

func (r *router) forget(tps ...TopicPartition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tp := range tps {
		delete(r.routes, tp)
	}
}

// fetchLimits bound one fetch request.
type fetchLimits struct {
	maxWait           time.Duration
	maxBytes          int32
	maxPartitionBytes int32
	isolation         Isolation
}

// position is a place to read from.
type position struct {
	TopicPartition
	route  route
	offset int64
}

// fetchOnce sends one fetch to a leader and reads the answer. Positions that the answer leaves out get no batch. An
// error is about the whole request.
func (c *Client) fetchOnce(ctx context.Context, leader int32, at []position, lim fetchLimits) ([]Batch, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(lim.maxWait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = lim.maxBytes
	req.IsolationLevel = lim.isolation.wire()
	index := make(map[string]int)
	names := make(map[[16]byte]string)
	offsets := make(map[TopicPartition]int64, len(at))
	for _, p := range at {
		i, ok := index[p.Topic]
		if !ok {
			i = len(req.Topics)
			index[p.Topic] = i
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic, rt.TopicID = p.Topic, p.route.topicID
			req.Topics = append(req.Topics, rt)
			names[p.route.topicID] = p.Topic
		}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p.Partition, p.offset, lim.maxPartitionBytes
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
		offsets[p.TopicPartition] = p.offset
	}
	kresp, err := c.link.Broker(leader).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := codeError("Fetch", resp.ErrorCode, nil); err != nil {
		return nil, err
	}
	var out []Batch
	for ti := range resp.Topics {
		t := &resp.Topics[ti]
		topic := t.Topic
		if resp.Version >= 13 {
			topic = names[t.TopicID]
		}
		for pi := range t.Partitions {
			p := &t.Partitions[pi]
			tp := TopicPartition{topic, p.Partition}
			from, asked := offsets[tp]
			if !asked {
				return nil, fmt.Errorf("kafka: the fetch answer names %s, which was not asked for", tp)
			}
			out = append(out, decode(tp, from, p, lim.isolation))
		}
	}
	return out, nil
}

// maxUnpackedBytes bounds the records of one batch after decompression, as brokers of ours do when they take it. A few
// bytes may claim or become any amount.
const maxUnpackedBytes = 128 << 20

// unpacker is kgo's decompressor with that bound, and without belief in what the bytes claim.
type unpacker struct{}

func (unpacker) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if codec == kgo.CodecNone {
		return src, nil
	}
	return compress.Decode(int8(codec), src, nil, maxUnpackedBytes)
}

func decode(tp TopicPartition, from int64, p *kmsg.FetchResponseTopicPartition, iso Isolation) Batch {
	level := kgo.ReadUncommitted()
	if iso == Committed {
		level = kgo.ReadCommitted()
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset:         from,
		IsolationLevel: level,
		Topic:          tp.Topic,
		Partition:      tp.Partition,
	}, p, unpacker{}, nil)
	late := findFarBatches(p.RecordBatches)
	b := Batch{
		TopicPartition:   tp,
		NextOffset:       max(next, from),
		LastStableOffset: p.LastStableOffset,
		HighWatermark:    p.HighWatermark,
		LogStartOffset:   p.LogStartOffset,
	}
	if len(fp.Records) > 0 {
		b.Records = make([]Record, 0, len(fp.Records))
	}
	for _, r := range fp.Records {
		if r.Attrs.IsControl() {
			continue
		}
		rec := Record{TopicPartition: tp, Offset: r.Offset, TimestampMs: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
		if far := late.find(r.Offset); far != nil {
			rec.TimestampMs = far.timestampMs(r.Timestamp)
		}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, Header{Key: h.Key, Value: h.Value})
			b.SizeBytes += len(h.Key) + len(h.Value)
		}
		b.Records = append(b.Records, rec)
		b.SizeBytes += len(r.Key) + len(r.Value) + recordOverheadBytes
	}
	if mutant.On("trailing marker not counted in a position") {
		b.NextOffset = from
		if n := len(b.Records); n > 0 {
			b.NextOffset = b.Records[n-1].Offset + 1
		}
	}
	if fp.Err != nil && b.NextOffset == from {
		b.Err = fp.Err
	}
	return b
}

// recordOverheadBytes is what a record costs besides its bytes.
const recordOverheadBytes = 96

// moved reports whether err says that the leader is to be found again.
func moved(err error) bool {
	for _, e := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.ReplicaNotAvailable, kerr.FencedLeaderEpoch,
		kerr.UnknownLeaderEpoch, kerr.KafkaStorageError, kerr.OffsetNotAvailable, kerr.UnknownTopicOrPartition,
		kerr.UnknownTopicID, kerr.InconsistentTopicID,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
