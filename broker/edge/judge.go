package edge

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/broker/wire"
	"github.com/strandline-io/strandline/internal/compress"
)

// versionZstd is the first version of Produce that may carry zstd (KIP-110).
const versionZstd = 7

// judge fills p's Batch, Header and Verdict from what the client sent for its partition, under the settings that its
// topic has at the moment (kafka-eos.md A.3 steps 3, 9, 10 and 11; C.10). The batch may be rewritten: in place where
// its length does not change, else in memory of its own.
//
// A topic that is not known is left to the loop, which says so, or knows it meanwhile and sends the batch back.
func (e *Edge) judge(version int16, records []byte, p *machine.ProducePartition, grown *growth) {
	var t *machine.Topic
	var known bool
	if p.Topic != "" {
		t, known = e.Board.Topic(p.Topic)
	} else {
		t, known = e.Board.TopicByID(p.TopicID)
	}
	batch, h, err := record.OneBatch(records)
	if err != nil {
		p.Verdict = refusedBy(err)
		p.Verdict.Container = true
		p.Header = h // a transactional batch wants its id before anybody looks at what follows it
		return
	}
	p.Batch, p.Header = batch, h
	if h.Codec() == record.CodecZstd && version < versionZstd {
		p.Verdict = machine.Verdict{Code: kerr.UnsupportedCompressionType.Code, Message: "zstd needs Produce version 7 or later", Container: true}
		return
	}
	if known {
		p.SettingsVersion = t.SettingsVersion
		p.Batch, p.Header, p.Verdict = e.judgeBatch(batch, h, &t.Settings, grown)
	}
}

// growth is what the batches of one request take beyond the frame that they came in, because their topics store them
// in another compression: a few hundred bytes may unpack to a megabyte, in each of thousands of partitions.
type growth struct {
	budget *wire.Budget // shared by all connections
	limit  int64        // of one request
	taken  int64
}

// take reserves n bytes of memory, or says why there are none.
func (g *growth) take(n int64) machine.Verdict {
	if g.taken+n > g.limit {
		return machine.Verdict{
			Code:    kerr.MessageTooLarge.Code,
			Message: fmt.Sprintf("the request's batches take more than %d bytes in the compression of their topics, send fewer at a time", g.limit),
		}
	}
	if !g.budget.TryAcquire(n) {
		return machine.Verdict{
			Code:    kerr.RequestTimedOut.Code,
			Message: "no memory is free to write the batch in its topic's compression, send it again",
		}
	}
	g.taken += n
	return machine.Verdict{}
}

// release gives everything back, once the bytes are written or refused.
func (g *growth) release() {
	if g.taken > 0 {
		g.budget.Release(g.taken)
		g.taken = 0
	}
}

// judgeBatch judges a batch under settings and returns it as it should be stored.
func (e *Edge) judgeBatch(batch []byte, h record.Header, settings *machine.Settings, grown *growth) ([]byte, record.Header, machine.Verdict) {
	policy := record.Policy{
		NowMs:                e.Now().UnixMilli(),
		MaxBatchBytes:        settings.MaxBatchBytes(e.MessageMaxBytes),
		Compacted:            settings.CleanupCompact,
		LogAppendTime:        settings.LogAppendTime,
		TimestampBeforeMaxMs: settings.TimestampBeforeMaxMs,
		TimestampAfterMaxMs:  settings.TimestampAfterMaxMs,
	}
	if r := record.CheckBatch(h, batch, policy); r.Code != 0 {
		return batch, h, verdictOf(r)
	}
	section := batch[record.HeaderSize:]
	if h.Codec() != record.CodecNone {
		e.unpacking <- struct{}{}
		defer func() { <-e.unpacking }()
		unpacked := e.Pool.Get(min(4*len(section), e.MaxUnpackedBytes))
		defer unpacked.Release()
		var err error
		if section, err = compress.Decode(h.Codec(), section, unpacked.B, e.MaxUnpackedBytes); err != nil {
			return batch, h, unpackRefusal(h, err)
		}
		unpacked.B = section
	}
	r := record.CheckRecords(h, section, policy)
	if r.Code != 0 {
		return batch, h, verdictOf(r)
	}
	codec := targetCodec(settings.CompressionType, h.Codec())
	if r.Renumber || codec != h.Codec() {
		var v machine.Verdict
		if v = grown.take(record.HeaderSize + int64(len(section))); v.Code != 0 {
			return batch, h, v
		}
		if batch, h, v = rebuild(batch, h, section, codec, r.Renumber, policy.MaxBatchBytes); v.Code != 0 {
			return batch, h, v
		}
	}
	if settings.SegmentBytes > 0 && len(batch) > int(settings.SegmentBytes) {
		return batch, h, machine.Verdict{
			Code:    kerr.RecordListTooLarge.Code,
			Message: fmt.Sprintf("the batch has %d bytes, the topic's segment.bytes is %d", len(batch), settings.SegmentBytes),
		}
	}
	if !settings.LogAppendTime {
		h = record.Settle(h, batch, r)
	}
	return batch, h, machine.Verdict{}
}

// rebuild writes the batch anew, with the topic's codec and, if need be, with the offsets 0 to n-1.
func rebuild(batch []byte, h record.Header, section []byte, codec int8, renumber bool, maxBatchBytes int32) ([]byte, record.Header, machine.Verdict) {
	if renumber {
		var err error
		if section, err = record.AppendRenumbered(make([]byte, 0, len(section)), section, h.RecordCount); err != nil {
			return batch, h, refusedBy(err)
		}
	}
	payload := section
	if codec != record.CodecNone {
		var err error
		if payload, err = compress.Encode(codec, section, nil); err != nil {
			return batch, h, machine.Verdict{Code: kerr.UnknownServerError.Code, Message: "the batch cannot be compressed as the topic demands: " + err.Error()}
		}
	}
	rebuilt := record.AppendRebuilt(make([]byte, 0, record.HeaderSize+len(payload)), h, codec, payload)
	if maxBatchBytes > 0 && len(rebuilt) > int(maxBatchBytes) {
		return batch, h, machine.Verdict{
			Code:    kerr.MessageTooLarge.Code,
			Message: fmt.Sprintf("the batch has %d bytes in the topic's compression, its max.message.bytes is %d", len(rebuilt), maxBatchBytes),
		}
	}
	h, err := record.ParseHeader(rebuilt)
	if err != nil {
		panic("BUG: a rebuilt batch cannot be parsed: " + err.Error())
	}
	return rebuilt, h, machine.Verdict{}
}

// targetCodec is the codec that a topic stores a batch with; a level makes no difference.
func targetCodec(compressionType string, sent int8) int8 {
	switch compressionType {
	case "uncompressed":
		return record.CodecNone
	case "gzip":
		return record.CodecGzip
	case "snappy":
		return record.CodecSnappy
	case "lz4":
		return record.CodecLZ4
	case "zstd":
		return record.CodecZstd
	}
	return sent // "producer"
}

func refusedBy(err error) machine.Verdict {
	var r *record.Refusal
	if errors.As(err, &r) {
		return machine.Verdict{Code: r.Code, Message: r.Message}
	}
	return machine.Verdict{Code: kerr.CorruptMessage.Code, Message: err.Error()}
}

func unpackRefusal(h record.Header, err error) machine.Verdict {
	return machine.Verdict{
		Code:    kerr.CorruptMessage.Code,
		Message: fmt.Sprintf("the records of the batch cannot be decompressed (compression type %d): %v", h.Codec(), err),
	}
}

func verdictOf(r record.Result) machine.Verdict {
	v := machine.Verdict{Code: r.Code, Message: r.Message}
	for _, e := range r.Records {
		v.Records = append(v.Records, machine.RecordError{Index: e.Index, Message: e.Message})
	}
	return v
}
