package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/internal/alloc"
)

// FuzzFetch reads any bytes as what a broker answers to a fetch. The position never moves back, records are in order
// and below the position. Memory is a multiple of what was sent, which zstd lets be large.
func FuzzFetch(f *testing.F) {
	two := append(timestamped(100, 5, 6), timestamped(102, 7)...)
	f.Add(two, int64(100), true, int64(103), int64(0), int64(0))
	f.Add(two[:len(two)-3], int64(101), false, int64(103), int64(1), int64(100))
	f.Add(timestamped(1<<62, 1<<60), int64(0), true, int64(-1), int64(-1), int64(1<<62))
	for codec := range byte(5) {
		packed := timestamped(100, 5, 6)
		packed[22] = codec
		f.Add(packed, int64(100), true, int64(103), int64(0), int64(0))
	}
	f.Fuzz(func(t *testing.T, sent []byte, from int64, committed bool, stable, abortedID, abortedFrom int64) {
		if from < 0 {
			return
		}
		raw := append([]byte(nil), sent...)
		fixBatches(raw)
		p := kmsg.NewFetchResponseTopicPartition()
		p.RecordBatches, p.HighWatermark, p.LastStableOffset = raw, stable, stable
		p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: abortedID, FirstOffset: abortedFrom}}
		isolation := Uncommitted
		if committed {
			isolation = Committed
		}
		var b Batch
		alloc.Within(t, len(raw), 1<<16, func() { b = decode(TopicPartition{"t", 0}, from, &p, isolation) })
		if b.NextOffset < from {
			t.Fatalf("position %d after %d", b.NextOffset, from)
		}
		at := from
		for _, r := range b.Records {
			if r.Offset < at || r.Offset >= b.NextOffset {
				t.Fatalf("offset %d, expected from %d, below %d", r.Offset, at, b.NextOffset)
			}
			at = r.Offset + 1
		}
	})
}

// fixBatches makes the CRCs right, so that the fuzzer need not guess them.
func fixBatches(b []byte) {
	for len(b) >= batchHeadBytes {
		size := int64(int32(binary.BigEndian.Uint32(b[batchLengthAt:]))) + batchLengthCounts
		if size < batchHeadBytes || size > int64(len(b)) {
			return
		}
		binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:size], crc32.MakeTable(crc32.Castagnoli)))
		b = b[size:]
	}
}

// FuzzBalance lets a leader balance what any members have sent. Whoever takes part, every task has one owner.
func FuzzBalance(f *testing.F) {
	stages := []StageInputs{{Stage: "a", Tasks: 3, Topics: []string{"x", "y"}}, {Stage: "b", Tasks: 1, Topics: []string{"z"}}}
	b := &taskBalancer{stages: stages}
	meta := b.JoinGroupMetadata([]string{"x", "y", "z"}, map[string][]int32{"x": {1, 2}}, 1)
	f.Add(meta, meta)
	f.Add(meta, []byte{})
	f.Add([]byte{0, 1}, meta)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		members := []kmsg.JoinGroupResponseMember{{MemberID: "1", ProtocolMetadata: first}, {MemberID: "2", ProtocolMetadata: second}}
		for n := range len(members) + 1 {
			var balance kgo.GroupMemberBalancer
			var err error
			alloc.Within(t, len(first)+len(second), 512, func() { balance, _, err = b.MemberBalancer(members[:n]) })
			if err != nil {
				continue
			}
			owners := make(map[Task]int)
			for _, a := range balance.Balance(nil).IntoSyncAssignment() {
				got, err := b.ParseSyncAssignment(a.MemberAssignment)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range stages {
					for _, number := range got[s.Topics[0]] {
						owners[Task{s.Stage, number}]++
					}
				}
			}
			for _, s := range stages {
				for number := range s.Tasks {
					if got := owners[Task{s.Stage, number}]; got != min(n, 1) {
						t.Fatalf("%d members: task %d of %s has %d owners", n, number, s.Stage, got)
					}
				}
			}
		}
	})
}
