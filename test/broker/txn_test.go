//go:build peers

package broker

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/test/peers"
)

// The names of these tests say which scenario of exactly-once systems they stand for: what has gone wrong elsewhere.

// bothVersions runs a test with transaction version 1 and 2.
func bothVersions(t *testing.T, f func(t *testing.T, version int)) {
	for version := 1; version <= 2; version++ {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			t.Parallel()
			f(t, version)
		})
	}
}

// newTopic starts a broker with a topic "t" of two partitions.
func newTopic(t *testing.T) (*server, context.Context) {
	t.Helper()
	s := start(t)
	ctx := within(t, patience)
	createTopic(t, ctx, s.Addr, "t", 2)
	return s, ctx
}

// expect compares what each partition of t shows, in order.
func expect(t *testing.T, ctx context.Context, s *server, what string, isolation kgo.IsolationLevel, want [2][]string) {
	t.Helper()
	found := readAll(t, ctx, s.Addr, isolation, []string{"t"})
	if diff := cmp.Diff(want, found.inOrder()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// expectOffsets compares last stable offset and high watermark of both partitions.
func expectOffsets(t *testing.T, ctx context.Context, s *server, what string, want [2][2]int64) {
	t.Helper()
	listed, err := listOffsets(ctx, client(t, s.Addr), "t")
	if err != nil {
		t.Fatal(err)
	}
	var got [2][2]int64
	for p, o := range listed["t"] {
		got[p] = [2]int64{o.stable, o.end}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: last stable offset, high watermark (-want +got):\n%s", what, diff)
	}
}

func expectCode(t *testing.T, what string, got int16, want ...*kerr.Error) {
	t.Helper()
	for _, w := range want {
		if got == w.Code {
			return
		}
	}
	t.Errorf("%s: %v, want %v", what, kerr.ErrorForCode(got), want)
}

func expectGroup(t *testing.T, s *server, what string, wantOffset int64, wantCode int16) {
	t.Helper()
	offset, code := committedOffset(t, s, "g", "t", 0, true)
	if code != wantCode || code == 0 && offset != wantOffset {
		t.Errorf("%s: the group's offset is %d, code %d; want %d, code %d", what, offset, code, wantOffset, wantCode)
	}
}

// TestCommitAfterKill: an open transaction, its offsets and its sequences survive kill -9, and its client goes on.
func TestCommitAfterKill(t *testing.T) {
	bothVersions(t, func(t *testing.T, version int) {
		s, ctx := newTopic(t)
		p := newProducer(t, s, "p", version, time.Minute)
		p.mustWrite("t", 0, "a", "b")
		if code := p.sendOffset("g", "t", 0, 2); code != 0 {
			t.Fatal(kerr.ErrorForCode(code))
		}
		s.restart()
		expectOffsets(t, ctx, s, "open after the restart", [2][2]int64{{0, 2}, {0, 0}})
		expectGroup(t, s, "open after the restart", -1, kerr.UnstableOffsetCommit.Code)
		if offset, code := p.writeAt("t", 0, 0, "a", "b"); offset != 0 || code != 0 {
			t.Errorf("a retry over the restart got offset %d, %v", offset, kerr.ErrorForCode(code))
		}
		if _, code := p.writeAt("t", 0, 3, "gap"); code != kerr.OutOfOrderSequenceNumber.Code {
			t.Errorf("a gap over the restart: %v", kerr.ErrorForCode(code))
		}
		p.mustWrite("t", 0, "c")
		p.mustWrite("t", 1, "d")
		s.restart()
		end := p.endRequest(true)
		p.mustEnd(true)
		s.restart()
		committed := [2][]string{{"a", "b", "c"}, {"d"}}
		expect(t, ctx, s, "committed", kgo.ReadCommitted(), committed)
		expectOffsets(t, ctx, s, "committed", [2][2]int64{{4, 4}, {2, 2}})
		expectGroup(t, s, "committed", 2, 0)
		// The answer may have been lost with the broker: the client asks again.
		if code := p.ended(p.ask(end).(*kmsg.EndTxnResponse)); code != 0 {
			t.Errorf("the retry of the commit over a restart: %v", kerr.ErrorForCode(code))
		}
		p.mustWrite("t", 0, "never")
		if code := p.sendOffset("g", "t", 0, 9); code != 0 {
			t.Fatal(kerr.ErrorForCode(code))
		}
		s.restart()
		p.mustEnd(false)
		expect(t, ctx, s, "aborted", kgo.ReadCommitted(), committed)
		expectGroup(t, s, "aborted", 2, 0)
		s.restart()
		expect(t, ctx, s, "aborted, restarted", kgo.ReadCommitted(), committed)
		expect(t, ctx, s, "aborted, restarted", kgo.ReadUncommitted(), [2][]string{{"a", "b", "c", "never"}, {"d"}})
	})
}

// TestTimeout (B3): a transaction over its timeout is aborted, whether the broker was up, killed meanwhile, or down when
// it was over; its client then can do nothing with it.
func TestTimeout(t *testing.T) {
	const timeout = 1500 * time.Millisecond
	variants := map[string]func(*server){
		"up":                   func(*server) {},
		"killed meanwhile":     func(s *server) { s.restart(); s.restart() },
		"down at the deadline": func(s *server) { s.Kill(); wait(int(timeout.Milliseconds())); s.Again() },
	}
	for name, disturb := range variants {
		t.Run(name, func(t *testing.T) {
			bothVersions(t, func(t *testing.T, version int) {
				s, ctx := newTopic(t)
				p := newProducer(t, s, "p", version, timeout)
				begin := time.Now()
				p.mustWrite("t", 0, "late")
				p.mustWrite("t", 1, "late")
				if code := p.sendOffset("g", "t", 0, 1); code != 0 {
					t.Fatal(kerr.ErrorForCode(code))
				}
				disturb(s)
				ready := time.Now()
				allStable(t, ctx, s.Addr, "t")
				// The marker says when it was decided, however slow this test is.
				decided := lastMarker(t, ctx, s)
				if late := decided.Sub(ready); decided.Sub(begin) > 2*timeout && late > timeout/2 {
					t.Errorf("aborted %v after the deadline, %v after the broker was there", decided.Sub(begin)-timeout, late)
				}
				if took := time.Since(begin); took < timeout-10*time.Millisecond {
					t.Errorf("aborted after %v, before its timeout of %v", took, timeout)
				} else {
					t.Logf("aborted after %v", took)
				}
				expectOffsets(t, ctx, s, "after the timeout", [2][2]int64{{2, 2}, {2, 2}})
				expectGroup(t, s, "after the timeout", -1, 0)
				_, code := p.writeAt("t", 0, 1, "too late")
				expectCode(t, "Produce", code, kerr.InvalidProducerEpoch)
				if version == 1 {
					expectCode(t, "AddPartitionsToTxn", p.addPartition("t", 0), kerr.ProducerFenced)
					expectCode(t, "AddOffsetsToTxn", p.sendOffset("g", "t", 0, 1), kerr.ProducerFenced)
					expectCode(t, "commit", p.end(true), kerr.ProducerFenced)
				} else {
					expectCode(t, "TxnOffsetCommit", p.sendOffset("g", "t", 0, 1), kerr.InvalidProducerEpoch)
					expectCode(t, "commit", p.end(true), kerr.InvalidTxnState)
				}
				expect(t, ctx, s, "after the timeout", kgo.ReadCommitted(), [2][]string{})
				expect(t, ctx, s, "after the timeout", kgo.ReadUncommitted(), [2][]string{{"late"}, {"late"}})
				successor := newProducer(t, s, "p", version, time.Minute)
				successor.mustWrite("t", 0, "next")
				successor.mustEnd(true)
				expect(t, ctx, s, "the next one", kgo.ReadCommitted(), [2][]string{{"next"}, nil})
			})
		})
	}
}

// lastMarker is the time of the newest marker in t.
func lastMarker(t *testing.T, ctx context.Context, s *server) time.Time {
	t.Helper()
	c := client(t, s.Addr, kgo.KeepControlRecords(), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer c.Close()
	var newest time.Time
	for seen := 0; seen < 2; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Attrs.IsControl() {
				seen++
				if r.Timestamp.After(newest) {
					newest = r.Timestamp
				}
			}
		})
	}
	return newest
}

// TestLateEndTxn (B1): the commit or abort of one transaction that arrives late does not end the next one. Transaction
// version 1 cannot tell them apart.
func TestLateEndTxn(t *testing.T) {
	s, ctx := newTopic(t)
	p := newProducer(t, s, "p", 2, time.Minute)
	p.mustWrite("t", 0, "first")
	commit, abort := p.endRequest(true), p.endRequest(false)
	p.mustEnd(true)
	duplicate := p.ask(commit).(*kmsg.EndTxnResponse)
	if duplicate.ErrorCode != 0 || duplicate.ProducerID != p.id || duplicate.ProducerEpoch != p.epoch {
		t.Errorf("a duplicate of the commit is answered with %+v, want id %d, epoch %d", duplicate, p.id, p.epoch)
	}
	expectCode(t, "an abort after the commit", p.ask(abort).(*kmsg.EndTxnResponse).ErrorCode, kerr.InvalidTxnState)
	p.mustWrite("t", 0, "second")
	for range 2 {
		expectCode(t, "late commit", p.ask(commit).(*kmsg.EndTxnResponse).ErrorCode, kerr.ProducerFenced)
		expectCode(t, "late abort", p.ask(abort).(*kmsg.EndTxnResponse).ErrorCode, kerr.ProducerFenced)
		expectOffsets(t, ctx, s, "late ends", [2][2]int64{{2, 3}, {0, 0}})
		s.restart()
	}
	p.mustEnd(false)
	expect(t, ctx, s, "in the end", kgo.ReadCommitted(), [2][]string{{"first"}, nil})
}

// TestReplacedProducer (B2): a new instance ends what the old one left open before it gets its answer, and the old one
// can do no more.
func TestReplacedProducer(t *testing.T) {
	bothVersions(t, func(t *testing.T, version int) {
		s, ctx := newTopic(t)
		var visible []string
		for round := range 3 {
			old := newProducer(t, s, "p", version, time.Minute)
			old.mustWrite("t", 0, "old")
			old.mustWrite("t", 1, "old")
			if round > 0 {
				s.restart()
			}
			young := newProducer(t, s, "p", version, time.Minute)
			listed, err := listOffsets(ctx, client(t, s.Addr), "t")
			if err != nil {
				t.Fatal(err)
			}
			if o := listed["t"]; o[0].stable != o[0].end || o[1].stable != o[1].end {
				t.Errorf("round %d: the newcomer got its answer before the old transaction was ended: %+v", round, o)
			}
			if round > 1 {
				s.restart()
			}
			young.mustWrite("t", 0, fmt.Sprint("young ", round))
			_, code := old.writeAt("t", 0, 1, "zombie")
			expectCode(t, "the old one writes", code, kerr.InvalidProducerEpoch)
			expectCode(t, "the old one commits", old.end(true), kerr.ProducerFenced)
			expectCode(t, "the old one initializes", old.init(time.Minute), kerr.ProducerFenced)
			young.mustEnd(true)
			visible = append(visible, fmt.Sprint("young ", round))
		}
		expect(t, ctx, s, "in the end", kgo.ReadCommitted(), [2][]string{visible, nil})
	})
}

// TestOffsetsAfterAbort (B5): markers take an offset, aborted records stay for read_uncommitted.
func TestOffsetsAfterAbort(t *testing.T) {
	bothVersions(t, func(t *testing.T, version int) {
		s, ctx := newTopic(t)
		p := newProducer(t, s, "p", version, time.Minute)
		check := func(what string) {
			expectOffsets(t, ctx, s, what, [2][2]int64{{4, 4}, {2, 2}})
			expect(t, ctx, s, what, kgo.ReadUncommitted(), [2][]string{{"a", "b", "c"}, {"d"}})
			expect(t, ctx, s, what, kgo.ReadCommitted(), [2][]string{})
			expectGroup(t, s, what, -1, 0)
		}
		p.mustWrite("t", 0, "a", "b", "c")
		p.mustWrite("t", 1, "d")
		if code := p.sendOffset("g", "t", 0, 3); code != 0 {
			t.Fatal(kerr.ErrorForCode(code))
		}
		expectOffsets(t, ctx, s, "open", [2][2]int64{{0, 3}, {0, 1}})
		p.mustEnd(false)
		check("aborted")
		s.restart()
		check("aborted, restarted")
	})
}

// TestAbortLoop (B4): readers that poll all the time, over restarts, never see a record that was aborted, though one of
// read_uncommitted has seen each before its transaction was.
func TestAbortLoop(t *testing.T) {
	s, ctx := newTopic(t)
	seen := make(chan string, 100)
	read := func() {
		c := client(t, s.Addr, kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(20*time.Millisecond))
		go func() {
			for {
				fetches := c.PollFetches(ctx)
				if fetches.IsClientClosed() || ctx.Err() != nil {
					return
				}
				fetches.EachRecord(func(r *kgo.Record) { seen <- string(r.Value) })
			}
		}()
	}
	producers := []*producer{newProducer(t, s, "old", 1, time.Minute), newProducer(t, s, "new", 2, time.Minute)}
	read()
	uncommitted := client(t, s.Addr, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(20*time.Millisecond))
	for n := range 60 {
		for _, p := range producers {
			p.mustWrite("t", int32(n%2), "aborted")
			p.mustWrite("t", int32(n/2%2), "aborted")
		}
		for left := 2 * len(producers); left > 0; {
			fetches := uncommitted.PollFetches(ctx)
			if ctx.Err() != nil {
				t.Fatalf("read_uncommitted misses %d records of round %d: %v", left, n, fetches.Err())
			}
			left -= fetches.NumRecords()
		}
		switch {
		case n == 20:
			read()
		case n%25 == 24:
			s.restart()
		}
		for _, p := range producers {
			p.mustEnd(false)
		}
	}
	read()
	const readers, last = 3, "last"
	for partition := range int32(2) {
		producers[1].mustWrite("t", partition, last)
	}
	producers[1].mustEnd(true)
	for range readers * 2 {
		select {
		case v := <-seen:
			if v != last {
				t.Fatalf("a reader saw %q", v)
			}
		case <-ctx.Done():
			t.Fatal("a reader never came to the end")
		}
	}
}

// TestKillWhileEnding (B7): a broker that is killed while it commits has either committed everywhere or nowhere, and
// finishes by itself.
func TestKillWhileEnding(t *testing.T) {
	rng := peers.Seed(t)
	s, ctx := newTopic(t)
	p := newProducer(t, s, "p", 2, time.Minute)
	var want [2][]string
	before := 0
	for round := range 10 {
		value := fmt.Sprint("round ", round)
		p.mustWrite("t", 0, value)
		p.mustWrite("t", 1, value)
		offset := int64(100 + round)
		if code := p.sendOffset("g", "t", 0, offset); code != 0 {
			t.Fatal(kerr.ErrorForCode(code))
		}
		end := p.endRequest(true)
		dial(t, s.Addr).conn.Write(frame(end))
		<-time.After(time.Duration(rng.IntN(600)) * time.Microsecond)
		s.Kill()
		s.Again()
		listed, err := listOffsets(ctx, client(t, s.Addr), "t")
		if err != nil {
			t.Fatal(err)
		}
		done := listed["t"][0].stable == listed["t"][0].end
		if done != (listed["t"][1].stable == listed["t"][1].end) {
			t.Fatalf("round %d: half a commit: %+v", round, listed)
		}
		if done {
			before++
		}
		if round%2 == 0 { // the client asks again
			if code := p.ended(p.ask(end).(*kmsg.EndTxnResponse)); code != 0 {
				t.Fatalf("round %d: the commit after the restart: %v", round, kerr.ErrorForCode(code))
			}
			done = true
		} else { // a successor comes
			p = newProducer(t, s, "p", 2, time.Minute)
		}
		if done {
			want[0], want[1] = append(want[0], value), append(want[1], value)
			expectGroup(t, s, value, offset, 0)
		} else if got, code := committedOffset(t, s, "g", "t", 0, true); code != 0 || got == offset {
			t.Errorf("round %d: not committed, and the group's offset is %d, code %d", round, got, code)
		}
		allStable(t, ctx, s.Addr, "t")
	}
	t.Logf("%d of 10 commits were durable before the kill", before)
	expect(t, ctx, s, "in the end", kgo.ReadCommitted(), want)
}

// TestStateBehindASnapshot: what lies only in a snapshot, because the journal that told of it is freed, is as good.
func TestStateBehindASnapshot(t *testing.T) {
	s := startTight(t, "fsync")
	ctx := within(t, patience)
	createTopic(t, ctx, s.Addr, "t", 2)
	createTopic(t, ctx, s.Addr, "filler", 1)
	ended := newProducer(t, s, "ended", 2, time.Minute)
	ended.mustWrite("t", 1, "aborted")
	ended.mustEnd(false)
	ended.mustWrite("t", 1, "committed")
	if code := ended.sendOffset("g", "t", 1, 7); code != 0 {
		t.Fatal(kerr.ErrorForCode(code))
	}
	lost := ended.endRequest(true)
	ended.mustEnd(true)
	open := newProducer(t, s, "open", 2, time.Minute)
	open.mustWrite("t", 0, "a", "b")
	if code := open.sendOffset("g", "t", 0, 5); code != 0 {
		t.Fatal(kerr.ErrorForCode(code))
	}
	journal := func() []string {
		names, err := filepath.Glob(filepath.Join(s.dir, "journal", "*.segment"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	before := journal()
	c := client(t, s.Addr, kgo.ProducerBatchCompression(kgo.NoCompression()))
	eventually(t, ctx, "that the journal is freed", func() (bool, error) {
		if err := c.ProduceSync(ctx, recordOf("filler", 0, fmt.Sprintf("%020000d", 0))).FirstErr(); err != nil {
			t.Fatal(err)
		}
		now := journal()
		return !slices.ContainsFunc(now, func(name string) bool { return slices.Contains(before, name) }), fmt.Errorf("%q", now)
	})
	s.restart()
	expectOffsets(t, ctx, s, "restarted", [2][2]int64{{0, 2}, {4, 4}})
	expectGroup(t, s, "restarted", -1, kerr.UnstableOffsetCommit.Code)
	if offset, code := open.writeAt("t", 0, 0, "a", "b"); offset != 0 || code != 0 {
		t.Errorf("a retry got offset %d, %v", offset, kerr.ErrorForCode(code))
	}
	if resp := ended.ask(lost).(*kmsg.EndTxnResponse); resp.ErrorCode != 0 || resp.ProducerEpoch != ended.epoch {
		t.Errorf("the retry of the commit: %v, epoch %d, want %d", kerr.ErrorForCode(resp.ErrorCode), resp.ProducerEpoch, ended.epoch)
	}
	open.mustWrite("t", 0, "c")
	open.mustEnd(true)
	expect(t, ctx, s, "committed", kgo.ReadCommitted(), [2][]string{{"a", "b", "c"}, {"committed"}})
	expectGroup(t, s, "committed", 5, 0)
	if offset, code := committedOffset(t, s, "g", "t", 1, true); offset != 7 || code != 0 {
		t.Errorf("the group's offset in partition 1 is %d, code %d", offset, code)
	}
}
