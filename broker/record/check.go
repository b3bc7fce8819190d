package record

import "math"

// MaxRecordErrors bounds how many records a refusal names; further bad ones only count.
const MaxRecordErrors = 100

// Policy is what a topic's settings demand of a client's batch.
type Policy struct {
	NowMs                int64 // wall clock, Unix milliseconds
	MaxBatchBytes        int32 // max.message.bytes; 0 is no bound
	Compacted            bool  // cleanup.policy contains compact
	LogAppendTime        bool  // message.timestamp.type
	TimestampBeforeMaxMs int64 // message.timestamp.before.max.ms
	TimestampAfterMaxMs  int64 // message.timestamp.after.max.ms
}

// RecordError names one record of a refused batch.
type RecordError struct {
	Index   int32
	Message string
}

// Result is the judgement of a client's batch. Code 0 is fine. The fields behind Records count only then.
type Result struct {
	Code    int16
	Message string
	Records []RecordError
	// MaxTimestamp is the largest record timestamp, which the header must show on a CreateTime topic.
	MaxTimestamp int64
	// Renumber says that a compressed batch's inner offsets are not 0..n-1: it must be rebuilt with
	// AppendRenumbered before it is stored.
	Renumber bool
}

// OneBatch cuts the one batch out of a Produce request's records field, which must hold exactly one (kafka-eos.md
// A.3 step 3). batch is records itself when there is no error, which is a *Refusal. h is also given when it is the header
// of a first batch that something follows.
func OneBatch(records []byte) (batch []byte, h Header, err error) {
	if len(records) == 0 {
		return nil, Header{}, refuse(CodeInvalidRecord, "produce request has no record batch for a partition, want exactly one")
	}
	if len(records) > posMagic && int8(records[posMagic]) != magicV2 {
		return nil, Header{}, refuse(CodeInvalidRecord, "record batch has magic %d, only 2 is supported: upgrade the client", int8(records[posMagic]))
	}
	h, err = ParseHeader(records)
	if err != nil {
		return nil, Header{}, err
	}
	if int(h.SizeBytes) > len(records) {
		return nil, Header{}, refuse(CodeInvalidRecord, "record batch names %d bytes, only %d were sent: there is no whole batch", h.SizeBytes, len(records))
	}
	if rest := len(records) - int(h.SizeBytes); rest > 0 {
		return nil, h, refuse(CodeInvalidRecord, "produce request has %d bytes behind a partition's first record batch, want exactly one batch", rest)
	}
	return records, h, nil
}

// CheckBatch judges what can be judged of a client's batch without its records: place, size, CRC, kind, counts and
// producer fields (kafka-eos.md A.3 step 9 and C.10). raw is the whole batch as OneBatch returned it. Judge it before
// decompressing.
func CheckBatch(h Header, raw []byte, p Policy) Result {
	refused := func(code int16, format string, args ...any) Result {
		r := refuse(code, format, args...)
		return Result{Code: r.Code, Message: r.Message}
	}
	switch {
	case h.BaseOffset != 0:
		return refused(CodeInvalidRecord, "record batch of a client has base offset %d, want 0", h.BaseOffset)
	case p.MaxBatchBytes > 0 && len(raw) > int(p.MaxBatchBytes):
		return refused(CodeMessageTooLarge, "record batch has %d bytes, the topic's max.message.bytes is %d", len(raw), p.MaxBatchBytes)
	case int(h.SizeBytes) != len(raw) || !CheckCRC(raw):
		return refused(CodeCorruptMessage, "record batch of %d bytes does not have its CRC %#08x", len(raw), h.CRC)
	case h.Control():
		return refused(CodeInvalidRecord, "clients may not write control batches")
	case h.Attributes&(attrUnknown|attrDeleteHorizon) != 0:
		return refused(CodeInvalidRecord, "record batch has attributes %#x with bits that no client may set", uint16(h.Attributes))
	case h.Codec() > CodecZstd:
		return refused(CodeUnsupportedCodec, "record batch has unknown compression type %d", h.Codec())
	case h.RecordCount <= 0 || int64(h.LastOffsetDelta)+1 != int64(h.RecordCount):
		return refused(CodeInvalidRecord, "record batch names %d records and last offset delta %d", h.RecordCount, h.LastOffsetDelta)
	case h.Idempotent() && h.BaseSequence < 0:
		return refused(CodeInvalidRecord, "record batch of producer id %d has sequence %d, want 0 or more", h.ProducerID, h.BaseSequence)
	case h.Idempotent() && h.ProducerEpoch < 0:
		return refused(CodeInvalidRecord, "record batch of producer id %d has epoch %d, want 0 or more", h.ProducerID, h.ProducerEpoch)
	case h.Transactional() && !h.Idempotent():
		return refused(CodeInvalidRecord, "transactional record batch without producer id")
	}
	return Result{}
}

// CheckRecords judges the records of a batch that CheckBatch found fine. section is its uncompressed records.
func CheckRecords(h Header, section []byte, p Policy) Result {
	c := recordCheck{}
	c.result.MaxTimestamp = math.MinInt64
	it := Records(section, h.RecordCount)
	var r Record
	for index := int32(0); it.Next(&r); index++ {
		timestamp := h.BaseTimestamp + r.TimestampDelta
		if overflows(h.BaseTimestamp, r.TimestampDelta, timestamp) {
			c.bad(CodeInvalidTimestamp, index, "timestamp delta %d leaves the range of timestamps", r.TimestampDelta)
			continue
		}
		c.result.MaxTimestamp = max(c.result.MaxTimestamp, timestamp)
		if r.OffsetDelta != index {
			if h.Codec() == CodecNone {
				c.bad(CodeInvalidRecord, index, "offset delta %d, want %d", r.OffsetDelta, index)
			}
			c.result.Renumber = true
		}
		switch {
		case p.Compacted && r.Key == nil: // then its time is not judged any more
			c.bad(CodeInvalidRecord, index, "compacted topics need a key")
		case p.LogAppendTime && h.LogAppendTime():
			c.bad(CodeInvalidTimestamp, index, "producers may not set the timestamp type LogAppendTime")
		case !p.LogAppendTime && timestamp != NoTimestamp && outOfBounds(timestamp, &p):
			c.bad(CodeInvalidTimestamp, index, "timestamp %d is outside of the bounds around %d: see message.timestamp.before.max.ms and message.timestamp.after.max.ms", timestamp, p.NowMs)
		}
	}
	if it.err != nil {
		return Result{Code: it.err.Code, Message: it.err.Message}
	}
	if c.result.Code != 0 {
		c.result.Message = "one or more records of the batch were refused"
	}
	return c.result
}

// Check is CheckBatch and, if that is fine, CheckRecords. raw is the whole batch, section its uncompressed records.
func Check(h Header, raw, section []byte, p Policy) Result {
	if r := CheckBatch(h, raw, p); r.Code != 0 {
		return r
	}
	return CheckRecords(h, section, p)
}

// Settle writes into raw, a batch found fine, what its judgement demands of the header of a CreateTime topic: the
// records' max timestamp and timestamp type CreateTime. It returns the header as it then is. Nothing is written, and
// the CRC is not computed, when the header says so already.
func Settle(h Header, raw []byte, r Result) Header {
	if h.MaxTimestamp == r.MaxTimestamp && !h.LogAppendTime() {
		return h
	}
	PatchCreateTime(raw, r.MaxTimestamp)
	h, err := ParseHeader(raw)
	if err != nil {
		panic("BUG: settling a batch that was never parsed: " + err.Error())
	}
	return h
}

type recordCheck struct{ result Result }

// bad notes a refused record. One bad timestamp makes the whole batch's code 32, otherwise it is 87.
func (c *recordCheck) bad(code int16, index int32, format string, args ...any) {
	if c.result.Code != CodeInvalidTimestamp {
		c.result.Code = code
	}
	if len(c.result.Records) < MaxRecordErrors {
		c.result.Records = append(c.result.Records, RecordError{Index: index, Message: refuse(code, format, args...).Message})
	}
}

func overflows(a, b, sum int64) bool {
	return (a > 0 && b > 0 && sum < 0) || (a < 0 && b < 0 && sum >= 0)
}

// outOfBounds compares unsigned distances, which no timestamp can make wrap.
func outOfBounds(timestamp int64, p *Policy) bool {
	if timestamp <= p.NowMs {
		return uint64(p.NowMs)-uint64(timestamp) > uint64(max(p.TimestampBeforeMaxMs, 0))
	}
	return uint64(timestamp)-uint64(p.NowMs) > uint64(max(p.TimestampAfterMaxMs, 0))
}

// MaxTimestamp is the largest timestamp of the records in section, the uncompressed records of a batch with header
// h, or NoTimestamp if there are none.
func MaxTimestamp(h Header, section []byte) (int64, error) {
	if h.LogAppendTime() {
		return h.MaxTimestamp, nil
	}
	it := Records(section, h.RecordCount)
	largest := NoTimestamp
	var r Record
	for it.Next(&r) {
		largest = max(largest, h.BaseTimestamp+r.TimestampDelta)
	}
	return largest, it.Err()
}
