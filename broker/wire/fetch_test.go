package wire

import (
	"bytes"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestFetchEqualsTheCodec encodes random responses of every version with kmsg and with FetchResponse.
func TestFetchEqualsTheCodec(t *testing.T) {
	const seeds = 20
	api, _ := Lookup(KeyFetch)
	var encoder FetchResponse
	for version := api.Min; version <= api.Max; version++ {
		for seed := range uint64(seeds) {
			r := rand.New(rand.NewPCG(seed, uint64(version)))
			want, endpoint := randomFetch(r, version)
			got := encode(&encoder, want, endpoint)
			if theirs := AppendResponse(nil, 11, want); !bytes.Equal(theirs, got) {
				t.Fatalf("version %d seed %d (-kmsg +ours):\n%s", version, seed, cmp.Diff(theirs, got))
			}
		}
	}
}

func encode(f *FetchResponse, resp *kmsg.FetchResponse, endpoint *FetchBroker) []byte {
	f.Begin(resp.Version, 11, resp.ErrorCode, resp.SessionID, len(resp.Topics))
	for _, topic := range resp.Topics {
		f.Topic(topic.Topic, topic.TopicID, len(topic.Partitions))
		for _, p := range topic.Partitions {
			out := FetchPartition{
				Index: p.Partition, ErrorCode: p.ErrorCode,
				HighWatermark: p.HighWatermark, LastStable: p.LastStableOffset, LogStart: p.LogStartOffset,
			}
			if p.AbortedTransactions != nil {
				out.Aborted = []FetchAborted{}
				for _, a := range p.AbortedTransactions {
					out.Aborted = append(out.Aborted, FetchAborted{a.ProducerID, a.FirstOffset})
				}
			}
			if p.DivergingEpoch.Epoch != -1 {
				out.Diverging = &FetchEpochEnd{p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset}
			}
			if p.CurrentLeader.LeaderID != -1 {
				out.Leader = &FetchLeader{p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch}
			}
			f.Partition(&out, p.RecordBatches)
		}
		f.EndTopic()
	}
	pieces, size := f.Finish(nil, endpoint)
	var out bytes.Buffer
	for _, p := range pieces {
		out.Write(p)
	}
	if out.Len() != size {
		panic("Finish named another size than it returned")
	}
	return out.Bytes()
}

func randomFetch(r *rand.Rand, version int16) (resp *kmsg.FetchResponse, endpoint *FetchBroker) {
	resp = kmsg.NewPtrFetchResponse()
	resp.Version = version
	resp.ErrorCode = int16(r.IntN(2) * 70)
	if version < 7 {
		resp.ErrorCode = 0
	}
	for range r.IntN(4) {
		topic := kmsg.NewFetchResponseTopic()
		if version < 13 {
			topic.Topic = string(make([]byte, r.IntN(200)))
		} else {
			topic.TopicID = [16]byte{byte(r.Uint32()), 1, 2, 15: 9}
		}
		for range r.IntN(4) {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.ErrorCode = r.Int32(), int16(r.IntN(100))
			p.HighWatermark, p.LastStableOffset, p.LogStartOffset = r.Int64(), r.Int64(), -1
			if version < 5 {
				p.LogStartOffset = -1
			}
			p.AbortedTransactions = nil
			if n := r.IntN(4); n > 0 {
				p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
				for range n - 1 {
					p.AbortedTransactions = append(p.AbortedTransactions, kmsg.FetchResponseTopicPartitionAbortedTransaction{
						ProducerID: r.Int64(), FirstOffset: r.Int64(),
					})
				}
			}
			p.RecordBatches = make([]byte, r.IntN(3)*r.IntN(20000))
			for i := range p.RecordBatches {
				p.RecordBatches[i] = byte(r.Uint32())
			}
			if version >= 12 && r.IntN(2) == 0 {
				p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = r.Int32(), r.Int64()
			}
			if version >= 12 && r.IntN(2) == 0 {
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = r.Int32(), r.Int32()
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	if version >= 16 && r.IntN(2) == 0 {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port = r.Int32(), "host.example", r.Int32()
		resp.Brokers = append(resp.Brokers, b)
		endpoint = &FetchBroker{ID: b.NodeID, Host: b.Host, Port: b.Port}
	}
	return resp, endpoint
}

func TestFetchDoesNotCopyRecords(t *testing.T) {
	records := []byte("aaaabb")
	var f FetchResponse
	f.Begin(12, 1, 0, 0, 1)
	f.Topic("t", [16]byte{}, 2)
	f.Partition(&FetchPartition{}, records[:4])
	f.Partition(&FetchPartition{Index: 1}, records[4:])
	f.EndTopic()
	pieces, _ := f.Finish(net.Buffers{}, nil)
	if len(pieces) != 5 || &pieces[1][0] != &records[0] || &pieces[3][0] != &records[4] {
		t.Errorf("%d pieces, or the record pieces lie elsewhere", len(pieces))
	}
}

func TestFetchEncodingDoesNotAllocate(t *testing.T) {
	records := make([]byte, 1000)
	var f FetchResponse
	pieces := make(net.Buffers, 0, 32)
	allocs := testing.AllocsPerRun(100, func() {
		f.Begin(16, 1, 0, 0, 1)
		f.Topic("topic", [16]byte{}, 10)
		for i := range int32(10) {
			f.Partition(&FetchPartition{Index: i}, records[100*i:100*i+100])
		}
		f.EndTopic()
		f.Finish(pieces[:0], nil)
	})
	if allocs > 0 {
		t.Errorf("%v allocations per response", allocs)
	}
}
