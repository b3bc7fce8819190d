// Package txn coordinates transactions: who may write under a transactional id, which partitions and groups its open
// transaction touches, and how it ends (KIP-98, KIP-360, KIP-447, KIP-890; kafka-eos.md B). It decides and applies; it
// writes no markers and sends nothing.
package txn

import "math"

// Config bounds transactions. The zero value works.
type Config struct {
	// MaxTimeoutMs is the longest transaction timeout that a producer may ask for (transaction.max.timeout.ms).
	// Default 900,000.
	MaxTimeoutMs int32
	// IDExpirationMs is how long an id without an open transaction is remembered (transactional.id.expiration.ms).
	// Default 7 days.
	IDExpirationMs int64
	// MaxIDs bounds the remembered transactional ids. At the bound the id that was idle for the longest is forgotten;
	// if none is idle, a new one is refused with COORDINATOR_NOT_AVAILABLE. Default 100,000.
	MaxIDs int
	// MaxIDBytes bounds them together, counted with 256 bytes and the length of each, likewise. Default 64 MiB.
	MaxIDBytes int64
	// MaxGroupsPerTxn bounds the consumer groups of one transaction. Default 1,000.
	MaxGroupsPerTxn int
	// MaxOpenBytes bounds what all open transactions together touch, counted with 4 bytes a partition, 32 and the length of
	// its name a group. At the bound nothing more is added: COORDINATOR_NOT_AVAILABLE. Default 128 MiB.
	MaxOpenBytes int64
}

func (c Config) orDefaults() Config {
	if c.MaxTimeoutMs <= 0 {
		c.MaxTimeoutMs = 900_000
	}
	if c.IDExpirationMs <= 0 {
		c.IDExpirationMs = 7 * 24 * 3600 * 1000
	}
	c.IDExpirationMs = min(c.IDExpirationMs, math.MaxInt64/4) // "never", without overflow
	if c.MaxIDs <= 0 {
		c.MaxIDs = 100_000
	}
	if c.MaxIDBytes <= 0 {
		c.MaxIDBytes = 64 << 20
	}
	if c.MaxOpenBytes <= 0 {
		c.MaxOpenBytes = 128 << 20
	}
	if c.MaxGroupsPerTxn <= 0 {
		c.MaxGroupsPerTxn = 1_000
	}
	return c
}
