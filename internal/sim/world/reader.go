package world

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/compress"
)

// cursor is where a reader is in a partition.
type cursor struct {
	topic     string
	topicID   [16]byte // set: it is read by its id
	partition int32
	committed bool // isolation level
	offset    int64
	lso, hw   int64
	end       int64 // what was acknowledged when the last fetch began
	losses    int   // power losses that it knows of
	code      int16 // of the last fetch
	trimmed   bool  // what is at offset may be deleted
	// batch, when not nil, is told of every batch.
	batch func(h record.Header)
}

func (u *cursor) name() string {
	if u.topicID != ([16]byte{}) {
		return partitionName(lifeName(u.topicID), u.partition)
	}
	return partitionName(u.topic, u.partition)
}

// lifeName names one life of the topic that is deleted and made again.
func lifeName(id [16]byte) string { return volatileTopic + "#" + hex.EncodeToString(id[:4]) }

// atEnd reports that there is nothing left to read and no transaction open, as of the last fetch.
func (u *cursor) atEnd() bool { return u.offset == u.hw && u.lso == u.hw }

// limit is up to where it may read, as of the last fetch.
func (u *cursor) limit() int64 {
	if u.committed {
		return u.lso
	}
	return u.hw
}

// fetch reads on once, as a consumer does (kafka-eos.md C.5); ok is false if the outcome is not known.
func (c *client) fetch(u *cursor) (values []*value, ok bool) {
	values = c.fetchAll(u)
	return values, u.code == 0
}

// unknownOutcome is the code of a fetch that was not answered.
const unknownOutcome = -999

// fetchAll reads several partitions on, with one request. All are read by name, or all by id.
func (c *client) fetchAll(cursors ...*cursor) (values []*value) {
	req := c.fetchRequest(cursors)
	versions := []int16{4, 11, 12}
	if cursors[0].topicID != ([16]byte{}) {
		versions = []int16{13, 16, 17}
	}
	version := versions[c.w.IntN(3)]
	goesOn := c.useSession(req, version, cursors)
	losses := c.w.stats.PowerLosses
	resp := c.ask(req, version)
	for _, u := range cursors {
		u.code = unknownOutcome
	}
	if resp == nil || c.w.mode.lossy && losses != c.w.stats.PowerLosses {
		c.session = nil
		return nil
	}
	r := resp.(*kmsg.FetchResponse)
	if r.ErrorCode != 0 && goesOn {
		c.tracef("its fetch session is gone: code %d", r.ErrorCode)
		c.session = nil
		return nil
	}
	if c.session.answered(r); r.SessionID == 0 {
		c.session = nil // there was no room for one
	}
	left := slices.Clone(cursors)
	for _, t := range r.Topics {
		for k := range t.Partitions {
			at := slices.IndexFunc(left, func(u *cursor) bool {
				return u.topicID == t.TopicID && u.partition == t.Partitions[k].Partition && (t.Topic == "" || t.Topic == u.topic)
			})
			if at < 0 {
				c.w.fail("codec: %s: a Fetch of %v is answered with %+v", c.name, req.Topics, r.Topics)
			}
			values = append(values, c.fetched(left[at], &t.Partitions[k])...)
			left = slices.Delete(left, at, at+1)
		}
	}
	if len(left) > 0 && !goesOn {
		c.w.fail("codec: %s: a Fetch of %d partitions is not answered for %d of them, code %d", c.name, len(cursors), len(left), r.ErrorCode)
	}
	for _, u := range left {
		u.code = 0 // nothing has changed
		c.shown(u)
		if len(cursors) == 1 && u.offset < u.limit() && !c.w.mode.lossy {
			c.w.fail("fetch session: %s: %s is left out at %d, it can be read up to %d", c.name, u.name(), u.offset, u.limit())
		}
	}
	return values
}

func (c *client) fetchRequest(cursors []*cursor) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.SessionEpoch, req.MinBytes = 1<<20, -1, 1
	if c.w.chance(30) {
		req.MaxWaitMillis = c.w.Int32N(400)
	}
	if cursors[0].committed {
		req.IsolationLevel = 1
	}
	for _, u := range cursors {
		if u.losses != c.w.stats.PowerLosses && c.w.mode.lossy {
			u.offset, u.lso, u.hw, u.losses = 0, 0, 0, c.w.stats.PowerLosses
		}
		u.end = c.w.history.ends[u.name()]
		t := kmsg.NewFetchRequestTopic()
		if u.topicID == ([16]byte{}) {
			t.Topic = u.topic
		}
		t.TopicID = u.topicID
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = u.partition, u.offset, 500+c.w.Int32N(8000), -1
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	return req
}

// fetched judges what a response says of one partition.
func (c *client) fetched(u *cursor, rp *kmsg.FetchResponseTopicPartition) []*value {
	if u.code = rp.ErrorCode; u.code != 0 {
		c.tracef("fetch of %s at %d: code %d", u.name(), u.offset, rp.ErrorCode)
		switch {
		case u.code == kerr.OffsetOutOfRange.Code && !u.trimmed:
			c.w.fail("acknowledged: %s: %s at %d is out of range", c.name, u.name(), u.offset)
		case u.code == kerr.UnknownTopicOrPartition.Code && u.topicID == [16]byte{} && !c.w.mode.lossy:
			c.w.fail("acknowledged: %s: %s is not known", c.name, u.name())
		}
		return nil
	}
	if rp.LastStableOffset < u.lso || rp.HighWatermark < u.hw || rp.LastStableOffset > rp.HighWatermark {
		c.w.fail("stable offset: %s: %s is stable up to %d of %d, it was up to %d of %d", c.name, u.name(), rp.LastStableOffset, rp.HighWatermark, u.lso, u.hw)
	}
	u.lso, u.hw = rp.LastStableOffset, rp.HighWatermark
	c.shown(u)
	return c.consume(u, rp)
}

// shown judges whether a fetch that began after a record was acknowledged sees it.
func (c *client) shown(u *cursor) {
	if u.hw < u.end && !c.w.mode.lossy {
		c.w.fail("acknowledged: %s: %s ends at %d, it was acknowledged up to %d before the fetch", c.name, u.name(), u.hw, u.end)
	}
}

// consume moves u behind the batches of a response and returns the values that its isolation level shows.
func (c *client) consume(u *cursor, rp *kmsg.FetchResponseTopicPartition) (values []*value) {
	limit := u.limit()
	aborted := slices.Clone(rp.AbortedTransactions)
	slices.SortFunc(aborted, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	skip := make(map[int64]bool)
	for b := rp.RecordBatches; len(b) > 0; {
		h, err := record.ParseHeader(b)
		if err != nil || int(h.SizeBytes) > len(b) || !record.CheckCRC(b[:h.SizeBytes]) {
			c.w.fail("codec: %s: %s at %d holds no batch: %v", c.name, u.name(), u.offset, err)
		}
		raw := b[:h.SizeBytes]
		b = b[h.SizeBytes:]
		if h.LastOffset() < u.offset {
			continue
		}
		if h.LastOffset() >= limit {
			c.w.fail("stable offset: %s: %s shows offset %d, it is to be read up to %d", c.name, u.name(), h.LastOffset(), limit)
		}
		if u.batch != nil {
			u.batch(h)
		}
		for len(aborted) > 0 && aborted[0].FirstOffset <= h.LastOffset() {
			skip[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		switch {
		case h.Control():
			if m, err := record.ParseMarker(raw); err != nil {
				c.w.fail("codec: %s: %s at %d: %v", c.name, u.name(), h.BaseOffset, err)
			} else if !m.Commit {
				delete(skip, h.ProducerID)
			}
		case u.committed && h.Transactional() && skip[h.ProducerID]:
		default:
			values = append(values, c.valuesOf(u, h, raw)...)
		}
		u.offset = h.NextOffset()
	}
	return values
}

func (c *client) valuesOf(u *cursor, h record.Header, raw []byte) (values []*value) {
	section := raw[record.HeaderSize:]
	if h.Codec() != record.CodecNone {
		var err error
		if section, err = compress.Decode(h.Codec(), section, nil, 1<<20); err != nil {
			c.w.fail("codec: %s: %s at %d: %v", c.name, u.name(), h.BaseOffset, err)
		}
	}
	it := record.Records(section, h.RecordCount)
	for r := (record.Record{}); it.Next(&r); {
		if at := h.BaseOffset + int64(r.OffsetDelta); at >= u.offset {
			v := c.w.saw(c.name, u.name(), at, u.committed, r.Value)
			if v.timestampMs = h.BaseTimestamp + r.TimestampDelta; h.LogAppendTime() {
				v.timestampMs = h.MaxTimestamp
			}
			values = append(values, v)
		}
	}
	return values
}

// startReader starts a client that the judge waits for.
func (w *World) startReader(name string, body func(c *client)) {
	started := w.startClient(name, false, func(c *client) {
		body(c)
		w.readers--
	})
	if started {
		w.readers++
	}
}

// startReaders starts readers that go along, of both isolation levels.
func (w *World) startReaders() {
	for _, topic := range topics {
		for i := range int32(inputPartitions) {
			for _, committed := range []bool{true, false} {
				name := fmt.Sprintf("reader-%s-%t", partitionName(topic, i), committed)
				w.startReader(name, func(c *client) { c.follow(&cursor{topic: topic, partition: i, committed: committed}) })
			}
		}
	}
}

// follow reads a partition until nothing more can come.
func (c *client) follow(u *cursor) {
	for {
		// Asked before the fetch: the answer may be old when a client that stood still gets to see it.
		last := c.w.healed && c.w.writers == 0
		values, ok := c.fetch(u)
		if u.committed && !c.w.mode.lossy {
			for _, v := range values {
				c.w.history.reading[u.name()] = append(c.w.history.reading[u.name()], v.id)
			}
		}
		if ok && last && u.atEnd() {
			return
		}
		if len(values) == 0 {
			c.sleep(20*msInUs + c.w.Int64N(300*msInUs))
		}
	}
}

// readAll is what a reader that starts now gets; batch may be nil. No power is lost meanwhile.
func (c *client) readAll(topic string, partition int32, committed bool, batch func(h record.Header)) (all []*value) {
	u := &cursor{topic: topic, partition: partition, committed: committed, batch: batch, losses: c.w.stats.PowerLosses}
	for ok := false; !ok || !u.atEnd(); {
		var values []*value
		values, ok = c.fetch(u)
		all = append(all, values...)
		if !ok || len(values) == 0 {
			c.sleep(10 * msInUs)
		}
	}
	return all
}
