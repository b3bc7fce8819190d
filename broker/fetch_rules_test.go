package broker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/internal/vfs"
)

// The rules of kafka-eos.md C.4 to C.9, what readers are given, and with them H.4. What else tests them:
//
//	C.4   producer/testdata/c4_stable.txt, TestStableOffsetIsTheOldestOpen, TestH3FirstUnstable in machine; that a fetch takes all from one
//	      published view: the mutant "published view read in parts" (internal/sim/mutants)
//	C.5   which aborted transactions are told: TestAbortedWithin in producer; how: TestAbortedListIsSortedAndBounded; files: docs/compat.md
//	C.6   limits: TestFetchEveryVersion, TestFetchBetweenStableAndEnd; errors: TestFetchErrors, TestLongPollEndsWithItsTopic; divergence:
//	      TestFetchTellsOfDivergence; MinBytes: TestLongPollCountsMinBytes, TestReadCommittedWaitsForTheCommit, TestParkedFetchTellsOfAborted;
//	      sizes: TestFetchSizes, TestFetchOfMuch, TestLargeBatches; sessions: TestFetchSession…; zstd for any version: docs/compat.md
//	C.7   versions: TestListOffsets; refusals: TestListOffsetsRefusals; by time: TestLogAppendTime, TestModel in segment
//	C.8   TestOffsetForLeaderEpoch, TestRestartKeepsWhatWasAcknowledged; the number rises: TestIncarnationRisesWithEveryOpening in journal
//	C.9   machine/testdata/delete_records.txt, TestDeleteRecords; DELETE on the topic: TestC9Permission in machine
//	C.11  compaction and retention are still to come: docs/compat.md
//	C.12  TestGoldenLayout, TestIndexFiles, TestOpenCleansUp in segment; what is different: docs/formats/segment.md, docs/compat.md
//	C.13  TestModel, TestEveryTruncationIsAPrefixOrRefused, TestEveryFlippedBitIsNoticedOrHarmless in journal; TestUnsyncedTimeIndex,
//	      TestOpenCleansUp in segment; docs/compat.md
//	H.4   aborted transactions over segments, epochs, DeleteRecords twice: here; the validator: produce_rules_test.go; an index that
//	      fails alone, a snapshot that is not durable: docs/compat.md, TestTrimWaitsForSnapshotAndReaders in journal

// C.7: every special timestamp, as both isolation levels and as a replica sees it, with a transaction aborted and another one open.
func TestC7BothIsolationLevels(t *testing.T) {
	c := dial(t, brokertest.Start(t, atNow()))
	topic := createTopic(c, "t", 1)
	createTopic(c, "empty", 1)
	at := func(p *txnProducer, ms int64) {
		t.Helper()
		b := record.NewBuilder()
		b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.Transactional = p.id, p.epoch, 0, true
		b.Add(nowMs+ms, nil, []byte("v"))
		req := produceRequest("t", 0, b.Append(nil))
		req.Version, req.TransactionID, req.Topics[0].TopicID = 13, &p.name, topic
		if r := produced(ask[*kmsg.ProduceResponse](c, req)); r.ErrorCode != 0 {
			t.Fatalf("code %d", r.ErrorCode)
		}
	}
	aborter, open := initProducer(c, "aborter"), initProducer(c, "open")
	produce(c, "t", 0, batchOf(nowMs+1000, "a", "b")) // 0, 1
	at(aborter, 5000)                                 // 2
	aborter.end(false)                                // 3, at now
	at(open, 9000)                                    // 4: the last stable offset
	produce(c, "t", 0, batchOf(nowMs+7000, "c"))      // 5

	f := func(timestamp int64, uncommitted, committed string) {
		t.Helper()
		for isolation, want := range []string{uncommitted, committed} {
			for _, replica := range []int32{-1, -2, 3} {
				if replica != -1 {
					want = uncommitted
				}
				req := listOffsetsRequest("t", 11, timestamp)
				req.IsolationLevel, req.ReplicaID = int8(isolation), replica
				p := ask[*kmsg.ListOffsetsResponse](c, req).Topics[0].Partitions[0]
				if p.Timestamp >= 0 {
					p.Timestamp -= nowMs
				}
				if got := fmt.Sprintf("%d: %d at %d of epoch %d", p.ErrorCode, p.Offset, p.Timestamp, p.LeaderEpoch); got != want {
					t.Errorf("%d, isolation %d, replica %d: %s, want %s", timestamp, isolation, replica, got, want)
				}
			}
		}
	}
	const none = "0: -1 at -1 of epoch -1"
	f(-1, "0: 6 at -1 of epoch 1", "0: 4 at -1 of epoch 1")
	f(-2, "0: 0 at -1 of epoch 1", "0: 0 at -1 of epoch 1")
	f(-3, "0: 4 at 9000 of epoch 1", "0: 2 at 5000 of epoch 1")
	f(-4, "0: 0 at -1 of epoch 1", "0: 0 at -1 of epoch 1")
	f(-5, none, none)
	f(-6, none, none)
	f(0, "0: 0 at 1000 of epoch 1", "0: 0 at 1000 of epoch 1")
	f(nowMs+1001, "0: 2 at 5000 of epoch 1", "0: 2 at 5000 of epoch 1")
	f(nowMs+5001, "0: 4 at 9000 of epoch 1", none)
	f(nowMs+9001, none, none)
	for timestamp, want := range map[int64]int64{-1: 0, -2: 0, -3: -1, -4: 0, 0: -1} {
		if p := listOffset(c, "empty", timestamp); p.ErrorCode != 0 || p.Offset != want || p.Timestamp != -1 {
			t.Errorf("of an empty partition, %d: %+v, want offset %d", timestamp, p, want)
		}
	}
}

// C.7: a marker is a record of the time at which it was written, for those who look by time; no reader gets it.
func TestC7Markers(t *testing.T) {
	c := dial(t, brokertest.Start(t, atNow()))
	topic := createTopic(c, "t", 1)
	p := initProducer(c, "p")
	p.write("t", topic, 0, "a") // at time 1
	p.end(true)
	for _, timestamp := range []int64{2, nowMs, -3} {
		if got := listOffset(c, "t", timestamp); got.Offset != 1 || got.Timestamp != nowMs {
			t.Errorf("timestamp %d: %+v, want the marker at offset 1", timestamp, got)
		}
	}
}

// C.8: where each epoch ends, over three lives of a broker of which the second wrote nothing, and after records were deleted.
func TestC8Epochs(t *testing.T) {
	dir := brokertest.Dir(t.TempDir())
	var c *rawClient
	for life := range 3 {
		b := brokertest.Start(t, dir)
		c = dial(t, b)
		if life == 0 {
			createTopic(c, "t", 1)
			produce(c, "t", 0, batchOf(1, "a", "b"))
		}
		if life < 2 {
			if err := b.Stop(); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := func(asked int32, want string) {
		t.Helper()
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version = 4
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = "t"
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.CurrentLeaderEpoch, p.LeaderEpoch = -1, asked
		rt.Partitions = append(rt.Partitions, p)
		req.Topics = append(req.Topics, rt)
		r := ask[*kmsg.OffsetForLeaderEpochResponse](c, req).Topics[0].Partitions[0]
		if got := fmt.Sprintf("%d: %d to %d", r.ErrorCode, r.LeaderEpoch, r.EndOffset); got != want {
			t.Errorf("epoch %d: %s, want %s", asked, got, want)
		}
	}
	f(3, "0: 3 to 2") // the current one, before it wrote anything
	produce(c, "t", 0, batchOf(1, "c", "d", "e"))
	f(0, "0: 0 to 0") // below all that are known
	f(1, "0: 1 to 2")
	f(2, "0: 1 to 2") // the largest that is not above it
	f(3, "0: 3 to 5")
	f(4, "0: -1 to -1")
	f(-1, "0: -1 to -1")
	epochOf := func(timestamp int64, want int32) {
		t.Helper()
		if p := listOffset(c, "t", timestamp); p.LeaderEpoch != want {
			t.Errorf("timestamp %d: %+v, want epoch %d", timestamp, p, want)
		}
	}
	epochOf(-2, 1)
	epochOf(-1, 3)
	// H.4: the epochs go with the records.
	if code, _ := deleteRecords(c, "t", 3); code != 0 {
		t.Fatalf("code %d", code)
	}
	epochOf(-2, 3)
	f(1, "0: 1 to 3")
	f(2, "0: 2 to 3")
	f(3, "0: 3 to 5")
}

// C.9: what DeleteRecords refuses, and that it does what it did before once more (H.4).
func TestC9DeleteRecords(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	createTopic(c, "t", 1)
	createTopic(c, "compact", 1, "cleanup.policy", "compact")
	createTopic(c, "both", 1, "cleanup.policy", "compact,delete")
	for _, topic := range []string{"t", "compact", "both"} {
		produce(c, topic, 0, batchOf(1, "a", "b", "c"))
	}
	f := func(topic string, offset int64, wantCode int16, wantLow int64) {
		t.Helper()
		if code, low := deleteRecords(c, topic, offset); code != wantCode || low != wantLow {
			t.Errorf("%s below %d: code %d, low watermark %d, want %d, %d", topic, offset, code, low, wantCode, wantLow)
		}
	}
	f("none", 1, 3, -1)
	f("__consumer_offsets", 1, 3, -1)
	f("compact", 1, 44, -1)
	f("both", 1, 0, 1)
	f("t", 4, 1, -1)
	f("t", -2, 1, -1)
	f("t", 2, 0, 2)
	f("t", 2, 0, 2)
	f("t", 0, 0, 2)
	f("t", -1, 0, 3)
	f("t", -1, 0, 3)
	if p := fetched(ask[*kmsg.FetchResponse](c, fetchRequest("t", 0, 2))); p.ErrorCode != 1 || p.LogStartOffset != 3 || p.HighWatermark != 3 {
		t.Errorf("a deleted offset: %+v", p)
	}
	if got := produce(c, "t", 0, batchOf(1, "d")); got != 3 {
		t.Errorf("the next record has offset %d", got)
	}
}

// C.4, C.9, H.4: the last stable offset is never below the log start, also where that lies within a batch of an open transaction;
// and it goes on when that ends.
func TestC9LastStableIsNotBelowTheLogStart(t *testing.T) {
	dir := brokertest.Dir(t.TempDir())
	b := brokertest.Start(t, dir)
	c := dial(t, b)
	topic := createTopic(c, "t", 1)
	p := initProducer(c, "open")
	p.write("t", topic, 0, "a", "b", "c")
	produce(c, "t", 0, batchOf(1, "d"))
	if code, low := deleteRecords(c, "t", 2); code != 0 || low != 2 {
		t.Fatalf("code %d, low watermark %d", code, low)
	}
	f := func(when string, stable int64, want ...string) {
		t.Helper()
		req := fetchRequest("t", 0, 2)
		req.IsolationLevel, req.MinBytes = 1, 0
		r := fetched(ask[*kmsg.FetchResponse](c, req))
		if diff := cmp.Diff(want, valuesOf(t, r.RecordBatches)); r.ErrorCode != 0 || r.LogStartOffset != 2 || r.LastStableOffset != stable || diff != "" {
			t.Errorf("%s: code %d, log start %d, last stable offset %d, want %d (-want +got):\n%s", when, r.ErrorCode, r.LogStartOffset, r.LastStableOffset, stable, diff)
		}
		list := listOffsetsRequest("t", 8, -1)
		list.IsolationLevel = 1
		if got := ask[*kmsg.ListOffsetsResponse](c, list).Topics[0].Partitions[0].Offset; got != stable {
			t.Errorf("%s: the latest offset is %d, want %d", when, got, stable)
		}
	}
	f("open", 2)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	c = dial(t, brokertest.Start(t, dir))
	p.c = c
	f("open, started again", 2)
	p.end(true)
	f("committed", 5, "a", "b", "c", "d") // the batch that holds offset 2 comes whole
}

// H.4, C.5: an aborted transaction that lies over many segments and files is told from whatever offset a reader begins, while it
// lies in the journal, in files, and when the broker has started again. Others are woven into it.
func TestH4AbortedOverManySegments(t *testing.T) {
	disk := vfs.NewMem()
	b := brokertest.Start(t, withSmallJournal(disk))
	c := dial(t, b)
	topic := createTopic(c, "t", 1, "segment.bytes", "1048576")
	aborted, committed := initProducer(c, "aborted"), initProducer(c, "committed")
	var kept []string
	var keptAt []int64
	filler := strings.Repeat("x", 4000)
	for i := range 120 {
		aborted.write("t", topic, 0, fmt.Sprint("never ", i), filler)
		if i%10 == 5 {
			kept = append(kept, fmt.Sprint("kept ", i))
			keptAt = append(keptAt, committed.write("t", topic, 0, kept[len(kept)-1]))
			committed.end(true)
		}
		if i == 60 {
			aborted.end(false)
		}
	}
	aborted.end(false)
	end := listOffset(c, "t", -1).Offset
	for _, when := range []string{"at once", "started again"} {
		for from := int64(0); from < end; from += 7 {
			var got []string
			for offset := from; offset < end; {
				req := fetchRequest("t", 0, offset)
				req.IsolationLevel = 1
				req.Topics[0].Partitions[0].PartitionMaxBytes = 50_000
				p := fetched(ask[*kmsg.FetchResponse](c, req))
				if p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
					t.Fatalf("%s, at %d: code %d, %d bytes", when, offset, p.ErrorCode, len(p.RecordBatches))
				}
				var values []string
				values, offset = committedOf(t, p, offset)
				got = append(got, values...)
			}
			first, _ := slices.BinarySearch(keptAt, from)
			if want := kept[first:]; !slices.Equal(got, want) {
				t.Fatalf("%s, from %d of %d: %.200q, want %q", when, from, end, got, want)
			}
		}
		if when == "at once" {
			if err := b.Stop(); err != nil {
				t.Fatal(err)
			}
			b = brokertest.Start(t, withSmallJournal(disk))
			c = dial(t, b)
		}
	}
}

// committedOf reads the records of a response from an offset on, as a read_committed client does, and where the next ones are.
func committedOf(t *testing.T, p *kmsg.FetchResponseTopicPartition, from int64) (values []string, next int64) {
	t.Helper()
	list := slices.Clone(p.AbortedTransactions)
	out := map[int64]bool{}
	for rest := p.RecordBatches; len(rest) > 0; {
		h, err := record.ParseHeader(rest)
		if err != nil {
			t.Fatal(err)
		}
		raw := rest[:h.SizeBytes]
		rest, next = rest[h.SizeBytes:], h.NextOffset()
		for len(list) > 0 && list[0].FirstOffset <= h.LastOffset() {
			out[list[0].ProducerID] = true
			list = list[1:]
		}
		switch {
		case h.Control():
			if m, err := record.ParseMarker(raw); err != nil {
				t.Fatal(err)
			} else if !m.Commit {
				delete(out, h.ProducerID)
			}
		case h.LastOffset() >= from && !(h.Transactional() && out[h.ProducerID]):
			values = append(values, valuesOf(t, raw)...)
		}
	}
	return values, next
}

// C.6: a consumer that takes part in no replication is sent to no other replica, and gets zstd in any version.
func TestC6EveryVersion(t *testing.T) {
	c := dial(t, brokertest.Start(t, atNow()))
	id := createTopic(c, "t", 1, "compression.type", "zstd")
	produce(c, "t", 0, batchOf(nowMs, "a"))
	for version := int16(4); version <= 18; version++ {
		req := fetchRequest("t", 0, 0)
		req.Version, req.Topics[0].TopicID = version, id
		p := fetched(ask[*kmsg.FetchResponse](c, req))
		if h, err := record.ParseHeader(p.RecordBatches); err != nil || p.ErrorCode != 0 || h.Codec() != record.CodecZstd || p.PreferredReadReplica != -1 {
			t.Errorf("version %d: code %d, %+v, %v, preferred replica %d", version, p.ErrorCode, h, err, p.PreferredReadReplica)
		}
	}
}

// C.6: who believes in an older leader epoch is told the newer one, and where that leader is.
func TestC6CurrentLeader(t *testing.T) {
	b := brokertest.Start(t)
	c := dial(t, b)
	id := createTopic(c, "t", 1)
	for version := int16(9); version <= 18; version++ {
		req := fetchRequest("t", 0, 0)
		req.Version, req.Topics[0].TopicID = version, id
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = 0
		resp := ask[*kmsg.FetchResponse](c, req)
		p := fetched(resp)
		want := kmsg.NewFetchResponseTopicPartitionCurrentLeader()
		if version >= 12 {
			want.LeaderID, want.LeaderEpoch = 1, 1
		}
		if p.ErrorCode != 74 || p.CurrentLeader.LeaderID != want.LeaderID || p.CurrentLeader.LeaderEpoch != want.LeaderEpoch {
			t.Errorf("version %d: code %d, leader %+v", version, p.ErrorCode, p.CurrentLeader)
		}
		if (len(resp.Brokers) == 1) != (version >= 16) || len(resp.Brokers) == 1 && fmt.Sprintf("%s:%d", resp.Brokers[0].Host, resp.Brokers[0].Port) != b.Addr() {
			t.Errorf("version %d: brokers %+v", version, resp.Brokers)
		}
	}
}
