package broker

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/wire"
)

// handler says how a connection serves one API key.
type handler struct {
	// start runs in the reader: it answers at once (slot.local), submits to the loop, or does nothing and leaves the
	// slot to evaluate. An error closes the connection.
	start func(*conn, *slot) error
	// finish turns the loop's reply into the response, in the writer. A nil response answers nothing.
	finish func(*conn, *slot) (kmsg.Response, error)
	// evaluate answers from published state, in the writer, when everything before is released.
	evaluate func(*conn, *slot) error
	// blocks keeps the reader from the next request until this one is answered, as Apache Kafka does with every
	// request: for those that may wait long, and those whose answers may be large.
	blocks bool
	// weigh, when not nil, says how many bytes a request really takes that may wait long. Until a request is answered
	// it is charged for the worst that its bytes could have decoded to, or for this.
	weigh func(kmsg.Request) int64
}

// handlers has an entry for every served key. Those that clients send often and that are answered shortly may be in
// flight several at a time.
var handlers = func() (h [128]*handler) {
	h[0] = &handler{start: startProduce, finish: finishProduce}
	h[1] = &handler{start: leaveToWriter, evaluate: serveFetch, blocks: true, weigh: weighFetch}
	h[2] = &handler{start: leaveToWriter, evaluate: serveListOffsets, blocks: true}
	h[3] = &handler{start: startLoop, finish: finishMetadata, blocks: true}
	h[10] = &handler{start: startLoop, finish: finishFindCoordinator, blocks: true}
	h[18] = &handler{start: startApiVersions}
	h[23] = &handler{start: leaveToWriter, evaluate: serveOffsetForLeaderEpoch, blocks: true}
	h[60] = &handler{start: startDescribeCluster}
	h[35] = &handler{start: leaveToWriter, evaluate: serveDescribeLogDirs, blocks: true}
	h[43] = &handler{start: startElectLeaders}
	h[45] = &handler{start: startAlterPartitionAssignments}
	h[46] = &handler{start: startListPartitionReassignments}
	h[48] = &handler{start: startDescribeClientQuotas}
	h[66] = &handler{start: startListTransactions, finish: finishListTransactions, blocks: true}
	h[68] = &handler{start: startConsumerGroupHeartbeat, finish: finishGroup}
	h[11] = &handler{start: startLoop, finish: finishGroup, blocks: true, weigh: weighJoinGroup}
	h[14] = &handler{start: startLoop, finish: finishLoop, blocks: true, weigh: weighSyncGroup}
	h[12] = &handler{start: startLoop, finish: finishGroup}
	for _, key := range []int16{8, 22, 24, 25, 26, 28} {
		h[key] = &handler{start: startLoop, finish: finishLoop}
	}
	for _, api := range wire.APIs() {
		if h[api.Key] == nil {
			h[api.Key] = &handler{start: startLoop, finish: finishLoop, blocks: true}
		}
	}
	return h
}()

// elementBytes is what one element of a decoded array takes at most, its strings and bytes apart.
const elementBytes = 256

func weighFetch(r kmsg.Request) int64 {
	req := r.(*kmsg.FetchRequest)
	n := len(req.Topics) + len(req.ForgottenTopics)
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	return int64(n) * elementBytes
}

func weighJoinGroup(r kmsg.Request) int64 {
	n := int64(0)
	for _, p := range r.(*kmsg.JoinGroupRequest).Protocols {
		n += elementBytes + int64(len(p.Name)+len(p.Metadata))
	}
	return n
}

func weighSyncGroup(r kmsg.Request) int64 {
	n := int64(0)
	for _, a := range r.(*kmsg.SyncGroupRequest).GroupAssignment {
		n += elementBytes + int64(len(a.MemberID)+len(a.MemberAssignment))
	}
	return n
}

func leaveToWriter(*conn, *slot) error { return nil }

// startLoop submits the request as it is.
func startLoop(c *conn, s *slot) error {
	return c.submit(s, s.req, int64(len(s.frame.B)), nil)
}

// finishLoop returns the loop's response as it is.
func finishLoop(c *conn, s *slot) (kmsg.Response, error) {
	resp, ok := s.reply.(kmsg.Response)
	if !ok {
		panic(fmt.Sprintf("BUG: the loop answered key %d with a %T", s.header.Key, s.reply))
	}
	resp.SetVersion(s.header.Version)
	return resp, nil
}

// refuseVersion answers a request whose key or version is not served, where a client can understand the answer:
// ApiVersions, and the versions of Produce that are advertised for librdkafka's sake only. Everything else closes the
// connection, as Apache Kafka does.
func refuseVersion(h wire.Header, frame []byte) (kmsg.Response, error) {
	switch {
	case h.Key == wire.KeyApiVersions:
		return wire.ApiVersionsFallback(), nil
	case h.Key == wire.KeyProduce && h.Version >= 0 && h.Version < 3:
		if resp := refuseOldProduce(h, frame); resp != nil {
			return resp, nil
		}
	}
	name := kmsg.NameForKey(h.Key)
	if api, known := wire.Lookup(h.Key); known {
		return nil, fmt.Errorf("%w: %s version %d is not served, only %d to %d; ask ApiVersions first",
			wire.ErrMalformed, name, h.Version, api.Min, api.Max)
	}
	return nil, fmt.Errorf("%w: API key %d (%s) version %d is not served; ask ApiVersions first", wire.ErrMalformed, h.Key, name, h.Version)
}

// refuseOldProduce answers Produce versions 0 to 2 with UNSUPPORTED_VERSION for each partition, or returns nil if
// the request cannot be read or wants no answer.
func refuseOldProduce(h wire.Header, frame []byte) kmsg.Response {
	const fixed = 8 // key, version, correlation id
	if len(frame) < fixed+2 || len(frame) > wire.DefaultMaxControlBytes {
		return nil
	}
	idBytes := max(0, int(int16(binary.BigEndian.Uint16(frame[fixed:]))))
	if len(frame) < fixed+2+idBytes {
		return nil
	}
	body := frame[fixed+2+idBytes:]
	req, err := wire.Decode(h, body)
	if err != nil {
		return nil
	}
	old := req.(*kmsg.ProduceRequest)
	if old.Acks == 0 {
		return nil
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = h.Version
	for _, t := range old.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.BaseOffset = p.Partition, kerr.UnsupportedVersion.Code, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// session is who a connection speaks for. Sign-in (SaslHandshake and SaslAuthenticate, client certificates) changes
// it, and nothing else needs to know how.
type session struct{ principal string }

var anonymous = session{principal: "User:ANONYMOUS"}

// admit says whether the session may send requests of this key at all. Without sign-in everybody may.
func (s session) admit(key int16) error {
	if s.principal == "" {
		return fmt.Errorf("key %d was sent before signing in", key)
	}
	return nil
}
