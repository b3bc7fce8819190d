package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestFullAnswerCostsNoMore: when an answer is as large as it may be, the groups that follow are refused at once. Their offsets
// are not put together only to be dropped, which took the loop a minute for a request of some kilobytes.
func TestFullAnswerCostsNoMore(t *testing.T) {
	const partitions = 200
	w := newWorld(t, Config{MaxGroupBytes: 128 << 10})
	w.topics["t"] = partitions
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.Generation = 8, "g", -1
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t"}}
	for i := range int32(partitions) {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = i, 1
		commit.Topics[0].Partitions = append(commit.Topics[0].Partitions, p)
	}
	w.gs.OffsetCommit(w, commit)
	var last kmsg.OffsetFetchResponseGroup
	w.reply = func(_ uint64, resp kmsg.Response) {
		all := resp.(*kmsg.OffsetFetchResponse).Groups
		last = all[len(all)-1]
	}
	allocations := func(groups int) float64 {
		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Version = 8
		for range groups {
			fetch.Groups = append(fetch.Groups, kmsg.OffsetFetchRequestGroup{Group: "g"})
		}
		return testing.AllocsPerRun(1, func() { w.gs.OffsetFetch(w, fetch) })
	}
	some, more := allocations(1000), allocations(2000)
	if last.ErrorCode != kerr.PolicyViolation.Code || last.Topics != nil {
		t.Fatalf("the last group is answered with code %d and %d topics, want POLICY_VIOLATION", last.ErrorCode, len(last.Topics))
	}
	if more-some > 1000 {
		t.Errorf("1,000 more groups, all refused, take %v more allocations", more-some)
	}
}
