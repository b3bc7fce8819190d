package machine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/group"
	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/machine/txn"
)

// Config is what the machine must know beside its state. The zero value works. Two machines that apply the same units
// reach the same durable state whatever their Configs are; a Config only steers decisions.
type Config struct {
	// NodeID is this broker's id, the leader and only replica of every partition. Default 1; 0 cannot be chosen.
	NodeID int32
	// NoAutoCreate refuses to create topics on Metadata.
	NoAutoCreate bool
	// DefaultPartitions is the partition count of topics that name none. Default 1.
	DefaultPartitions int32
	// MessageMaxBytes is what bounds a batch in topics without a max.message.bytes of their own: connections judge by it, the
	// machine only shows it. Default DefaultMessageMaxBytes.
	MessageMaxBytes int32
	// Described is what DescribeConfigs tells of the broker, in any order.
	Described []BrokerConfig
	// ClampReplicationFactor takes any replication factor for 1, for programs that insist on more; else it is refused.
	ClampReplicationFactor bool
	// MaxPartitionsPerTopic bounds one topic, MaxPartitions all topics together. Defaults 10,000 and 100,000.
	MaxPartitionsPerTopic int32
	MaxPartitions         int
	// Producer bounds what is remembered of producers.
	Producer producer.Config
	// Txn bounds transactions.
	Txn txn.Config
	// Group bounds consumer groups and offsets.
	Group group.Config
	// May authorizes operations. Default: everybody may do everything.
	May Authorizer
}

// BrokerConfig is one of the broker's settings as DescribeConfigs shows it. Without a Default the value is the operator's.
type BrokerConfig struct {
	Name, Value, Default, Doc string
	Kind                      kmsg.ConfigType
}

// Validate returns all problems of c at once, or nil.
func (c Config) Validate() error {
	var errs []error
	if c.NodeID < 0 {
		errs = append(errs, fmt.Errorf("machine: NodeID is %d: give one from 1 on, or 0 for the default", c.NodeID))
	}
	d := c.orDefaults()
	if d.MaxPartitionsPerTopic > maxPartitionsPerRecord {
		errs = append(errs, fmt.Errorf("machine: MaxPartitionsPerTopic is %d, at most %d can be had", d.MaxPartitionsPerTopic, maxPartitionsPerRecord))
	}
	if d.DefaultPartitions > d.MaxPartitionsPerTopic {
		errs = append(errs, fmt.Errorf("machine: DefaultPartitions %d is above MaxPartitionsPerTopic %d", d.DefaultPartitions, d.MaxPartitionsPerTopic))
	}
	return errors.Join(append(errs, c.Group.Validate())...)
}

// Defaults of Config.
const (
	DefaultNodeID                = 1
	DefaultMaxPartitionsPerTopic = 10_000
	DefaultMaxPartitions         = 100_000
	DefaultMessageMaxBytes       = 1_048_588
)

func (c Config) orDefaults() Config {
	if c.NodeID == 0 {
		c.NodeID = DefaultNodeID
	}
	if c.DefaultPartitions <= 0 {
		c.DefaultPartitions = 1
	}
	if c.MessageMaxBytes <= 0 {
		c.MessageMaxBytes = DefaultMessageMaxBytes
	}
	c.Described = slices.SortedFunc(slices.Values(c.Described), func(a, b BrokerConfig) int { return strings.Compare(a.Name, b.Name) })
	if c.MaxPartitionsPerTopic <= 0 {
		c.MaxPartitionsPerTopic = DefaultMaxPartitionsPerTopic
	}
	if c.MaxPartitions <= 0 {
		c.MaxPartitions = DefaultMaxPartitions
	}
	return c
}
