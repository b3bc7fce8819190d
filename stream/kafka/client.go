package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Client asks and administers a cluster: topics, offsets, settings, reads up to a known end. One serves a whole
// process. Its methods may be called at the same time; each ends with its context.
type Client struct {
	cfg                Config
	kc                 *kgo.Client // nil over a Link that is not franz-go's
	link               Link
	adm                *kadm.Client
	transactionVersion int16
	deletesRecords     bool
	routes             router // of Fetch
}

const (
	// retryPause is the wait between two tries of an answer that a cluster gives while it settles.
	retryPause = 20 * time.Millisecond
	// maxRetryPause bounds the growth of retryPause.
	maxRetryPause = 500 * time.Millisecond
)

// Open connects and learns what the cluster can do. It does not wait for a broker that is not there: the error is an
// *UnreachableError then, and another try may succeed.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	kc, err := kgo.NewClient(cfg.options()...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	c := &Client{cfg: cfg, kc: kc, link: kgoLink{kc}, adm: kadm.NewClient(kc)}
	if err = c.learn(ctx); err != nil {
		kc.Close()
		if Unanswered(err) || ctx.Err() != nil {
			return nil, &UnreachableError{Brokers: cfg.Brokers, Err: err}
		}
		return nil, fmt.Errorf("kafka: the cluster at %s cannot be used: %w", strings.Join(cfg.Brokers, ", "), err)
	}
	return c, nil
}

// Close ends all connections.
func (c *Client) Close() { c.kc.Close() }

// TransactionVersion is the finalized transaction.version when the client was opened: 2 and above add partitions and
// groups to a transaction implicitly and raise the epoch at its end (KIP-890).
func (c *Client) TransactionVersion() int16 { return c.transactionVersion }

// learn asks a broker what it serves.
func (c *Client) learn(ctx context.Context) error {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, c.link)
	if err != nil {
		return err
	}
	if err := codeError("ApiVersions", resp.ErrorCode, nil); err != nil {
		return err
	}
	c.deletesRecords = slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
		return k.ApiKey == int16(kmsg.DeleteRecords)
	})
	c.transactionVersion = 1
	if resp.FinalizedFeaturesEpoch < 0 {
		return nil
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" {
			c.transactionVersion = f.MaxVersionLevel
		}
	}
	return nil
}

// CheckTransactionTimeout compares the timeout that a job wants with the broker's maximum. A broker that does not tell
// its maximum passes: InitProducerId will judge. The refusal is a *TransactionTimeoutError.
func (c *Client) CheckTransactionTimeout(ctx context.Context, timeout time.Duration) error {
	controller, err := c.anyBroker(ctx)
	if err != nil {
		return err
	}
	configs, err := c.adm.DescribeBrokerConfigs(ctx, controller)
	if err != nil {
		return nil // not allowed to ask, or not known: InitProducerId judges
	}
	for _, rc := range configs {
		for _, v := range rc.Configs {
			if v.Key != "transaction.max.timeout.ms" || v.Value == nil {
				continue
			}
			maxMs, err := strconv.ParseInt(*v.Value, 10, 64)
			if err == nil && timeout.Milliseconds() > maxMs {
				return &TransactionTimeoutError{WantMs: timeout.Milliseconds(), MaxMs: maxMs}
			}
		}
	}
	return nil
}

func (c *Client) anyBroker(ctx context.Context) (int32, error) {
	m, err := c.adm.BrokerMetadata(ctx)
	if err != nil {
		return 0, fmt.Errorf("kafka: asking for the cluster's brokers: %w", err)
	}
	if len(m.Brokers) == 0 {
		return 0, errors.New("kafka: the cluster names no broker")
	}
	return m.Brokers[0].NodeID, nil
}

// Isolation chooses what of a partition is seen.
type Isolation int8

const (
	// Committed: up to the last stable offset, below the first open transaction, without what was aborted.
	Committed Isolation = iota
	// Uncommitted: up to the high watermark, everything.
	Uncommitted
)

// wire is the protocol's isolation level.
func (i Isolation) wire() int8 {
	if i == Committed {
		return 1
	}
	return 0
}

// StartOffsets gives the log start of each partition.
func (c *Client) StartOffsets(ctx context.Context, tps []TopicPartition) (map[TopicPartition]int64, error) {
	return c.listOffsets(ctx, tps, Uncommitted, -2)
}

// EndOffsets gives the end of each partition under an isolation.
func (c *Client) EndOffsets(ctx context.Context, tps []TopicPartition, iso Isolation) (map[TopicPartition]int64, error) {
	return c.listOffsets(ctx, tps, iso, -1)
}

func (c *Client) listOffsets(ctx context.Context, tps []TopicPartition, iso Isolation, at int64) (map[TopicPartition]int64, error) {
	out := make(map[TopicPartition]int64, len(tps))
	if len(tps) == 0 {
		return out, nil
	}
	err := retry(ctx, c.link, func() error {
		clear(out)
		req := kmsg.NewPtrListOffsetsRequest()
		req.IsolationLevel = iso.wire()
		for _, t := range byTopic(tps) {
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = t.topic
			for _, p := range t.partitions {
				rp := kmsg.NewListOffsetsRequestTopicPartition()
				rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p, at, -1
				rt.Partitions = append(rt.Partitions, rp)
			}
			req.Topics = append(req.Topics, rt)
		}
		resp, err := req.RequestWith(ctx, c.link)
		if err != nil {
			return err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return fmt.Errorf("kafka: ListOffsets of %s-%d: %w", t.Topic, p.Partition, err)
				}
				out[TopicPartition{t.Topic, p.Partition}] = p.Offset
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, tp := range tps {
		if _, ok := out[tp]; !ok {
			return nil, fmt.Errorf("kafka: ListOffsets left out %s", tp)
		}
	}
	return out, nil
}

// CommittedOffsets gives the offsets that group has committed, of those partitions that have one. It requires stable
// offsets and waits, within ctx, until no open transaction holds one (KIP-447): a predecessor's commit is either in
// the answer or will never be.
func (c *Client) CommittedOffsets(ctx context.Context, group string, tps []TopicPartition) (map[TopicPartition]int64, error) {
	out := make(map[TopicPartition]int64, len(tps))
	if len(tps) == 0 {
		return out, nil
	}
	err := retry(ctx, c.link, func() error {
		clear(out)
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group, req.RequireStable = group, true
		for _, t := range byTopic(tps) {
			rt := kmsg.NewOffsetFetchRequestTopic()
			rt.Topic, rt.Partitions = t.topic, t.partitions
			req.Topics = append(req.Topics, rt)
		}
		resp, err := req.RequestWith(ctx, c.link)
		if err != nil {
			return err
		}
		return readCommitted(resp, group, out)
	})
	if errors.Is(err, kerr.GroupIDNotFound) {
		return map[TopicPartition]int64{}, nil
	}
	return out, err
}

func readCommitted(resp *kmsg.OffsetFetchResponse, group string, out map[TopicPartition]int64) error {
	if err := codeError("OffsetFetch of group "+group, resp.ErrorCode, nil); err != nil {
		return err
	}
	one := func(topic string, partition int32, offset int64, code int16) error {
		if err := kerr.ErrorForCode(code); err != nil {
			return fmt.Errorf("kafka: OffsetFetch of %s-%d in group %s: %w", topic, partition, group, err)
		}
		if offset >= 0 {
			out[TopicPartition{topic, partition}] = offset
		}
		return nil
	}
	for _, g := range resp.Groups {
		if err := codeError("OffsetFetch of group "+group, g.ErrorCode, nil); err != nil {
			return err
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if err := one(t.Topic, p.Partition, p.Offset, p.ErrorCode); err != nil {
					return err
				}
			}
		}
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := one(t.Topic, p.Partition, p.Offset, p.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

// StaticMembers lists the instance ids in a group, alive or not yet expired.
func (c *Client) StaticMembers(ctx context.Context, group string) ([]string, error) {
	groups, err := c.adm.DescribeGroups(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("kafka: asking for the members of group %s: %w", group, err)
	}
	d := groups[group]
	if d.Err != nil && !errors.Is(d.Err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("kafka: asking for the members of group %s: %w", group, d.Err)
	}
	var out []string
	for _, m := range d.Members {
		if m.InstanceID != nil {
			out = append(out, *m.InstanceID)
		}
	}
	return out, nil
}

// RemoveMembers takes static members out of a group, so that their tasks move at once instead of after the session
// timeout. Unknown members are no error.
func (c *Client) RemoveMembers(ctx context.Context, group string, instances ...string) error {
	if len(instances) == 0 {
		return nil
	}
	resps, err := c.adm.LeaveGroup(ctx, kadm.LeaveGroup(group).InstanceIDs(instances...))
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) && !errors.Is(err, kerr.UnknownMemberID) {
		return fmt.Errorf("kafka: removing members of group %s: %w", group, err)
	}
	for _, r := range resps {
		if r.Err != nil && !errors.Is(r.Err, kerr.UnknownMemberID) && !errors.Is(r.Err, kerr.GroupIDNotFound) {
			return fmt.Errorf("kafka: removing member %s of group %s: %w", r.InstanceID, group, r.Err)
		}
	}
	return nil
}
