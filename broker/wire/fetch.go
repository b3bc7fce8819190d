package wire

import (
	"encoding/binary"
	"net"
)

// FetchResponse encodes a Fetch response, versions 4 to 18, as pieces of its own bytes between pieces of record
// data that lie elsewhere and are not copied. Begin, then for each topic Topic, its Partitions and EndTopic, then
// Finish. One FetchResponse serves many responses, one after another.
type FetchResponse struct {
	version int16
	head    []byte // everything but records
	cuts    []fetchCut
	records int // bytes of records so far
}

// fetchCut says that records follow the head's bytes up to headEnd.
type fetchCut struct {
	headEnd int
	records []byte
}

// FetchPartition is one partition's part of a response. Offsets are -1 with an error.
type FetchPartition struct {
	Index         int32
	ErrorCode     int16
	HighWatermark int64
	LastStable    int64
	LogStart      int64
	// Aborted is nil for read_uncommitted; empty for read_committed without aborted transactions.
	Aborted []FetchAborted
	// Diverging is answered to a fetcher whose log has diverged (KIP-595, version 12).
	Diverging *FetchEpochEnd
	// Leader is set with errors of leadership and epochs (KIP-951, version 12).
	Leader *FetchLeader
}

// FetchAborted is one aborted transaction that overlaps the returned records.
type FetchAborted struct{ ProducerID, FirstOffset int64 }

// FetchEpochEnd is the end of the newest epoch that both logs have.
type FetchEpochEnd struct {
	Epoch     int32
	EndOffset int64
}

// FetchLeader is a partition's current leader.
type FetchLeader struct{ ID, Epoch int32 }

// FetchBroker is the address of a leader named in a response (version 16).
type FetchBroker struct {
	ID   int32
	Host string
	Port int32
}

const (
	fetchFlexible   = 12
	fetchTopicIDs   = 13
	fetchEndpoints  = 16
	noReadReplica   = -1
	fetchErrorsFrom = 7
)

// Begin starts a response for topics topics. sessionID is 0 where there is no fetch session (KIP-227, version 7).
func (f *FetchResponse) Begin(version int16, correlationID int32, errorCode int16, sessionID int32, topics int) {
	f.version = version
	clear(f.cuts)
	f.cuts = f.cuts[:0]
	f.records = 0
	h := append(f.head[:0], 0, 0, 0, 0)
	h = appendResponseHeader(h, correlationID, version >= fetchFlexible)
	h = appendInt32(h, 0) // throttle
	if version >= fetchErrorsFrom {
		h = appendInt16(h, errorCode)
		h = appendInt32(h, sessionID)
	}
	f.head = f.appendLen(h, topics)
}

// Topic starts a topic, named by name up to version 12 and by id from 13 on, of partitions partitions.
func (f *FetchResponse) Topic(name string, id [16]byte, partitions int) {
	h := f.head
	switch {
	case f.version >= fetchTopicIDs:
		h = append(h, id[:]...)
	case f.version >= fetchFlexible:
		h = binary.AppendUvarint(h, uint64(len(name))+1)
		h = append(h, name...)
	default:
		h = appendInt16(h, int16(len(name)))
		h = append(h, name...)
	}
	f.head = f.appendLen(h, partitions)
}

// Partition adds a partition with its records, which must not change before they are written.
func (f *FetchResponse) Partition(p *FetchPartition, records []byte) {
	h := appendInt32(f.head, p.Index)
	h = appendInt16(h, p.ErrorCode)
	h = appendInt64(h, p.HighWatermark)
	h = appendInt64(h, p.LastStable)
	if f.version >= 5 {
		h = appendInt64(h, p.LogStart)
	}
	h = f.appendAborted(h, p.Aborted)
	if f.version >= 11 {
		h = appendInt32(h, noReadReplica)
	}
	if f.version >= fetchFlexible {
		h = binary.AppendUvarint(h, uint64(len(records))+1)
	} else {
		h = appendInt32(h, int32(len(records)))
	}
	if len(records) > 0 {
		f.records += len(records)
		f.cuts = append(f.cuts, fetchCut{headEnd: len(h), records: records})
	}
	if f.version >= fetchFlexible {
		h = appendPartitionTags(h, p)
	}
	f.head = h
}

func (f *FetchResponse) appendAborted(h []byte, aborted []FetchAborted) []byte {
	switch {
	case aborted == nil && f.version >= fetchFlexible:
		return append(h, 0)
	case aborted == nil:
		return appendInt32(h, -1)
	}
	h = f.appendLen(h, len(aborted))
	for _, a := range aborted {
		h = appendInt64(h, a.ProducerID)
		h = appendInt64(h, a.FirstOffset)
		if f.version >= fetchFlexible {
			h = append(h, 0)
		}
	}
	return h
}

// appendPartitionTags appends the tags 0, diverging epoch (int32, int64 and their own tags: 13 bytes), and 1, current
// leader (two int32 and tags: 9 bytes).
func appendPartitionTags(h []byte, p *FetchPartition) []byte {
	count := byte(0)
	if p.Diverging != nil {
		count++
	}
	if p.Leader != nil {
		count++
	}
	h = append(h, count)
	if d := p.Diverging; d != nil {
		h = append(h, 0, 13)
		h = appendInt32(h, d.Epoch)
		h = appendInt64(h, d.EndOffset)
		h = append(h, 0)
	}
	if l := p.Leader; l != nil {
		h = append(h, 1, 9)
		h = appendInt32(h, l.ID)
		h = appendInt32(h, l.Epoch)
		h = append(h, 0)
	}
	return h
}

// EndTopic ends the topic that Topic began.
func (f *FetchResponse) EndTopic() {
	if f.version >= fetchFlexible {
		f.head = append(f.head, 0)
	}
}

// Finish ends the response and appends its pieces to dst, in order; together they are one whole frame of sizeBytes.
// The pieces are the partitions' records and parts of f's own memory: neither may change before they are written.
// endpoint is given, from version 16 on, when a partition named a leader.
func (f *FetchResponse) Finish(dst net.Buffers, endpoint *FetchBroker) (pieces net.Buffers, sizeBytes int) {
	f.end(endpoint)
	sizeBytes = len(f.head) + f.records
	binary.BigEndian.PutUint32(f.head, uint32(sizeBytes-4))
	from := 0
	for _, c := range f.cuts {
		dst = append(dst, f.head[from:c.headEnd], c.records)
		from = c.headEnd
	}
	if from < len(f.head) {
		dst = append(dst, f.head[from:])
	}
	return dst, sizeBytes
}

func (f *FetchResponse) end(endpoint *FetchBroker) {
	if f.version < fetchFlexible {
		return
	}
	if endpoint == nil || f.version < fetchEndpoints {
		f.head = append(f.head, 0)
		return
	}
	var node []byte
	node = append(node, 2) // one broker
	node = appendInt32(node, endpoint.ID)
	node = binary.AppendUvarint(node, uint64(len(endpoint.Host))+1)
	node = append(node, endpoint.Host...)
	node = appendInt32(node, endpoint.Port)
	node = append(node, 0, 0) // no rack, no tags
	h := append(f.head, 1, 0)
	h = binary.AppendUvarint(h, uint64(len(node)))
	f.head = append(h, node...)
}

func (f *FetchResponse) appendLen(h []byte, n int) []byte {
	if f.version >= fetchFlexible {
		return binary.AppendUvarint(h, uint64(n)+1)
	}
	return appendInt32(h, int32(n))
}

func appendInt16(b []byte, v int16) []byte { return binary.BigEndian.AppendUint16(b, uint16(v)) }
func appendInt32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func appendInt64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }
