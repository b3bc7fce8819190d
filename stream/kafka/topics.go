package kafka

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topic is what a cluster knows of a topic.
type Topic struct {
	Name       string
	ID         string // 32 hex digits; all zero on brokers without topic ids
	Partitions int32
}

// TopicSpec is a topic as a job needs it.
type TopicSpec struct {
	Name       string
	Partitions int32
	// Compacted asks for cleanup.policy=compact, else delete.
	Compacted bool
	// KeepForever asks for retention.ms=-1, because event times may be years old, and for a
	// message.timestamp.after.max.ms without bound, because they may also lie ahead: of a schedule, or of a day that is
	// not over. Brokers refuse by default what is more than an hour ahead.
	KeepForever bool
}

// Topics describes those of names that exist; the others are absent.
func (c *Client) Topics(ctx context.Context, names ...string) (map[string]Topic, error) {
	out := make(map[string]Topic, len(names))
	if len(names) == 0 {
		return out, nil
	}
	err := retry(ctx, c.link, func() error {
		clear(out)
		req := kmsg.NewPtrMetadataRequest()
		for _, name := range names {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = &name
			req.Topics = append(req.Topics, t)
		}
		resp, err := req.RequestWith(ctx, c.link)
		if err != nil {
			return fmt.Errorf("kafka: asking for topics: %w", err)
		}
		for _, t := range resp.Topics {
			switch err := kerr.ErrorForCode(t.ErrorCode); {
			case t.Topic == nil, errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
			case err != nil:
				return fmt.Errorf("kafka: topic %q: %w", *t.Topic, err)
			default:
				out[*t.Topic] = Topic{Name: *t.Topic, ID: hex.EncodeToString(t.TopicID[:]), Partitions: int32(len(t.Partitions))}
			}
		}
		return nil
	})
	return out, err
}

// CreateTopics creates what is missing of specs and returns all of them as they then are. Another process may be
// faster: what exists is compared, and a *DifferentTopicError says what does not fit. A topic that was there before
// is compared by partitions only, and by its clean-up policy if it must be compacted: its retention is its owner's.
func (c *Client) CreateTopics(ctx context.Context, specs []TopicSpec) (map[string]Topic, error) {
	if len(specs) == 0 {
		return map[string]Topic{}, nil
	}
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	existing, err := c.Topics(ctx, names...)
	if err != nil {
		return nil, err
	}
	var missing []TopicSpec
	for _, s := range specs {
		if _, ok := existing[s.Name]; !ok {
			missing = append(missing, s)
		}
	}
	if err := c.create(ctx, missing); err != nil {
		return nil, err
	}
	topics, err := c.awaitTopics(ctx, names)
	if err != nil {
		return nil, err
	}
	for _, s := range specs {
		if err := c.compare(ctx, s, topics[s.Name]); err != nil {
			return nil, err
		}
	}
	return topics, nil
}

func (c *Client) create(ctx context.Context, specs []TopicSpec) error {
	if len(specs) == 0 {
		return nil
	}
	refused, err := c.tryCreate(ctx, specs, true)
	if err != nil || len(refused) == 0 {
		return err
	}
	_, err = c.tryCreate(ctx, refused, false)
	return err
}

// timestampAfterMax is unknown to Apache Kafka before 3.6 (KIP-937), which takes any time.
const timestampAfterMax = "message.timestamp.after.max.ms"

// tryCreate creates topics. With anyTime, those whose configuration the broker does not take come back in refused.
func (c *Client) tryCreate(ctx context.Context, specs []TopicSpec, anyTime bool) (refused []TopicSpec, _ error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	for _, s := range specs {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = s.Name, s.Partitions, -1
		set := func(k, v string) {
			tc := kmsg.NewCreateTopicsRequestTopicConfig()
			tc.Name, tc.Value = k, &v
			t.Configs = append(t.Configs, tc)
		}
		if s.Compacted {
			set("cleanup.policy", "compact")
		}
		if s.KeepForever {
			set("retention.ms", "-1")
			if anyTime {
				set(timestampAfterMax, strconv.FormatInt(math.MaxInt64, 10))
			}
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, c.link)
	if err != nil {
		return nil, fmt.Errorf("kafka: creating topics: %w", err)
	}
	for _, t := range resp.Topics {
		if t.ErrorCode == kerr.TopicAlreadyExists.Code {
			continue
		}
		if anyTime && t.ErrorCode == kerr.InvalidConfig.Code {
			i := slices.IndexFunc(specs, func(s TopicSpec) bool { return s.Name == t.Topic })
			if i >= 0 && specs[i].KeepForever {
				refused = append(refused, specs[i])
				continue
			}
		}
		if err := codeError("creating topic "+strconv.Quote(t.Topic), t.ErrorCode, t.ErrorMessage); err != nil {
			return nil, err
		}
	}
	return refused, nil
}

// awaitTopics waits until metadata shows topics that were just created.
func (c *Client) awaitTopics(ctx context.Context, names []string) (map[string]Topic, error) {
	var topics map[string]Topic
	err := retry(ctx, c.link, func() (err error) {
		if topics, err = c.Topics(ctx, names...); err != nil {
			return err
		}
		for _, n := range names {
			if t, ok := topics[n]; !ok || t.Partitions == 0 {
				return fmt.Errorf("kafka: topic %q does not appear: %w", n, kerr.LeaderNotAvailable)
			}
		}
		return nil
	})
	return topics, err
}

func (c *Client) compare(ctx context.Context, want TopicSpec, got Topic) error {
	if got.Partitions != want.Partitions {
		return &DifferentTopicError{Topic: want.Name, What: "partition count",
			Want: strconv.Itoa(int(want.Partitions)), Got: strconv.Itoa(int(got.Partitions))}
	}
	if !want.Compacted {
		return nil
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, want.Name
	req.Resources = append(req.Resources, rr)
	resp, err := req.RequestWith(ctx, c.link)
	if err != nil {
		return fmt.Errorf("kafka: asking for the settings of topic %q: %w", want.Name, err)
	}
	for _, rc := range resp.Resources {
		if err := codeError("asking for the settings of topic "+strconv.Quote(want.Name), rc.ErrorCode, rc.ErrorMessage); err != nil {
			return err
		}
		for _, v := range rc.Configs {
			if v.Name == "cleanup.policy" && (v.Value == nil || *v.Value != "compact") {
				got := "unknown"
				if v.Value != nil {
					got = *v.Value
				}
				return &DifferentTopicError{Topic: want.Name, What: v.Name, Want: "compact", Got: got}
			}
		}
	}
	return nil
}

// DeleteRecords moves the log start of each partition up to an offset. It is a courtesy to the broker's disk: a broker
// that cannot do it leaves the records: ErrNotServed.
func (c *Client) DeleteRecords(ctx context.Context, upTo map[TopicPartition]int64) error {
	if !c.deletesRecords {
		return fmt.Errorf("kafka: DeleteRecords: %w", ErrNotServed)
	}
	os := make(kadm.Offsets)
	for tp, o := range upTo {
		os.AddOffset(tp.Topic, tp.Partition, o, -1)
	}
	resps, err := c.adm.DeleteRecords(ctx, os)
	if err != nil {
		return fmt.Errorf("kafka: deleting records that all readers have passed: %w", err)
	}
	if err := resps.Error(); errors.Is(err, kerr.UnsupportedVersion) {
		return fmt.Errorf("kafka: DeleteRecords: %w: %w", ErrNotServed, err)
	} else if err != nil {
		return fmt.Errorf("kafka: deleting records that all readers have passed: %w", err)
	}
	return nil
}

// SortedTopics lists topics by name, for messages and records whose bytes must not depend on chance.
func SortedTopics(topics map[string]Topic) []Topic {
	out := make([]Topic, 0, len(topics))
	for _, t := range topics {
		out = append(out, t)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}
