package machine

import (
	"math"

	"github.com/strandline-io/strandline/broker/machine/group"
)

// Settings are a topic's configuration values that the broker acts on. Units are in the names; defaults are Apache
// Kafka's (kafka-eos.md G).
type Settings struct {
	CleanupCompact       bool
	CleanupDelete        bool
	RetentionMs          int64 // -1 for ever
	RetentionBytes       int64 // -1 unbounded
	DeleteRetentionMs    int64
	MaxMessageBytes      int32
	CompressionType      string // "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"
	LogAppendTime        bool
	TimestampBeforeMaxMs int64
	TimestampAfterMaxMs  int64
	MinInsyncReplicas    int32
	SegmentBytes         int32
	// Explicit holds what CreateTopics named, verbatim, for DescribeConfigs; also keys the broker only keeps.
	Explicit []Setting
}

// MaxBatchBytes is the largest batch that the topic takes: its own max.message.bytes, or the broker's message.max.bytes.
func (s *Settings) MaxBatchBytes(messageMaxBytes int32) int32 {
	if _, own := s.named(maxMessageBytes); own {
		return s.MaxMessageBytes
	}
	return messageMaxBytes
}

// Setting is one configuration entry as a client wrote it.
type Setting = group.Setting

// DefaultSettings are a topic's settings when CreateTopics names none (kafka-eos.md G).
func DefaultSettings() Settings {
	return Settings{
		CleanupDelete:        true,
		RetentionMs:          7 * 24 * 3600 * 1000,
		RetentionBytes:       -1,
		DeleteRetentionMs:    24 * 3600 * 1000,
		MaxMessageBytes:      DefaultMessageMaxBytes,
		CompressionType:      "producer",
		TimestampBeforeMaxMs: math.MaxInt64,
		TimestampAfterMaxMs:  3600 * 1000,
		MinInsyncReplicas:    1,
		SegmentBytes:         1 << 30,
	}
}
