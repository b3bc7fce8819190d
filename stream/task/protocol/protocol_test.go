package protocol

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task/core"
)

// fencedProducer is one whose transactional id was taken over, by whomever.
type fencedProducer struct{ Producer }

func (fencedProducer) Flush(context.Context) error { return nil }
func (fencedProducer) CommitOffsets(context.Context, kafka.Membership, map[kafka.TopicPartition]int64) error {
	return nil
}
func (fencedProducer) Commit(context.Context) (kafka.Outcome, error) {
	return kafka.EndOutcome(kerr.ProducerFenced, 2, 0)
}

// A producer is fenced by a late InitProducerId of its own as by another process: the transaction is given up, and the group
// says whose the slot is.
func TestFencedIsNotTheEnd(t *testing.T) {
	ended, err := Commit(t.Context(), fencedProducer{}, NewTokens(), core.Commit{Epoch: 3})
	if err != nil || ended.Outcome == core.Committed || ended.Epoch != 3 {
		t.Errorf("got %+v, %v", ended, err)
	}
	opened := false
	_, err = TakeSlot(t.Context(), func(context.Context) error { return kafka.ErrFenced }, func(context.Context) (int, error) {
		opened = true
		return 0, nil
	})
	if !errors.Is(err, kafka.ErrFenced) || opened {
		t.Errorf("the slot is another's: %v, opened %t", err, opened)
	}
}

// A first try may have committed, ended a producer id and gone unanswered; then somebody else came: the transaction is not known to
// be aborted.
func TestReplacedProducerDoesNotKnow(t *testing.T) {
	for _, err := range []error{kerr.InvalidProducerIDMapping, kerr.ProducerFenced, kerr.InvalidProducerEpoch} {
		if outcome, _ := kafka.EndOutcome(err, 2, 1); outcome != kafka.Unknown {
			t.Errorf("%v: outcome %v", err, outcome)
		}
	}
}

// movingGroup answers with another committed offset each time.
type movingGroup struct{ offset int64 }

func (g *movingGroup) Broker(int32) kmsg.Requestor              { return g }
func (*movingGroup) Pause(context.Context, time.Duration) error { return nil }
func (g *movingGroup) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	resp := req.ResponseKind()
	switch r := req.(type) {
	case *kmsg.OffsetFetchRequest:
		g.offset++
		for _, t := range r.Topics {
			rt := kmsg.NewOffsetFetchResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetFetchResponseTopicPartition()
				rp.Partition, rp.Offset = p, g.offset
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.(*kmsg.OffsetFetchResponse).Topics = append(resp.(*kmsg.OffsetFetchResponse).Topics, rt)
		}
	case *kmsg.ListOffsetsRequest:
		for _, t := range r.Topics {
			rt := kmsg.NewListOffsetsResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewListOffsetsResponseTopicPartition()
				rp.Partition, rp.Offset = p.Partition, 0
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.(*kmsg.ListOffsetsResponse).Topics = append(resp.(*kmsg.ListOffsetsResponse).Topics, rt)
		}
	}
	return resp, nil
}

// A restore that stood still while a successor committed is begun anew: offsets and checkpoint do not fit together, and that
// is no damage.
func TestOvertakenRestoreIsRepeated(t *testing.T) {
	j := stream.NewJob("j")
	s := stream.FromTopic(j, "in", stream.TopicSource[string, int64]{
		Topic: "in", Partitions: 1, Codecs: stream.Codecs[string, int64]{Key: stream.String, Value: stream.Int64},
	})
	stream.ToTopic(s, "out", stream.TopicSink[string, int64]{Topic: "out", Partitions: 1, Codecs: stream.Codecs[string, int64]{Key: stream.String, Value: stream.Int64}})
	plan, err := j.Build()
	if err != nil {
		t.Fatal(err)
	}
	own := core.Ownership{Task: core.Task{Stage: "in"}, Token: 1}
	_, err = Restore(t.Context(), kafka.Over(&movingGroup{}, 2), plan, nil, own, nil, 0)
	if !errors.Is(err, errOvertaken) || Final(err) {
		t.Errorf("got %v", err)
	}
}

func TestWhoReadOnIsNoLoss(t *testing.T) {
	for _, c := range []struct {
		position, start, committed int64
		final                      bool
	}{
		{position: 534, start: 650, committed: 700},
		{position: 534, start: 650, committed: 650},
		{position: 534, start: 650, committed: 534, final: true},
		{position: 534, start: 650, committed: 649, final: true},
		{position: 0, start: 1, committed: 0, final: true},
		{position: 900, start: 650, committed: 700, final: true}, // behind the end
	} {
		err := whyGone(&kafka.OffsetRangeError{Position: c.position, LogStart: c.start}, c.committed)
		var cause *kafka.OffsetRangeError
		if Final(err) != c.final || !errors.As(err, &cause) || cause.Position != c.position {
			t.Errorf("%+v: final %v: %v", c, Final(err), err)
		}
	}
}
