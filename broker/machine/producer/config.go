package producer

import "math"

// Config bounds what is remembered of producers. The zero value works.
type Config struct {
	// ExpirationMs is how long a producer without an open transaction is remembered after its last batch or marker
	// (producer.id.expiration.ms). Default 86,400,000.
	ExpirationMs int64
	// MaxEntries bounds the remembered pairs of partition and producer id, about 400 bytes each. At the bound the pair
	// that was idle for the longest is forgotten; if all have open transactions, a new producer is refused with
	// NOT_ENOUGH_REPLICAS. Default 100,000.
	MaxEntries int
	// MaxRefused bounds the refused first sequences that are remembered (see Partition.Refused). Default 10,000.
	MaxRefused int
}

func (c Config) orDefaults() Config {
	if c.ExpirationMs <= 0 {
		c.ExpirationMs = 86_400_000
	}
	c.ExpirationMs = min(c.ExpirationMs, math.MaxInt64/4) // "never", without overflow
	if c.MaxEntries <= 0 {
		c.MaxEntries = 100_000
	}
	if c.MaxRefused <= 0 {
		c.MaxRefused = 10_000
	}
	return c
}
