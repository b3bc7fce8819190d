package broker

import (
	"log/slog"
	"time"

	"github.com/strandline-io/strandline/broker/machine"
)

// countLog tells the operator of what is counted: how much was forgotten because a bound was reached (a producer that is forgotten
// too early has lost the protection from its own duplicates, or its transactional id), and markers that no partition wanted. It
// belongs to the loop.
type countLog struct {
	log              *slog.Logger
	now              func() time.Time
	producerIDs      count
	transactionalIDs count
	skippedMarkers   count
}

type count struct {
	message  string
	what     string
	also     []any // of each line
	inAll    int
	logged   int // of inAll, by the last line
	loggedAt time.Time
}

// countPause lies at least between two lines about the same.
const countPause = 10 * time.Second

func newCountLog(cfg Config) *countLog {
	return &countLog{
		log: cfg.Logger, now: cfg.Now,
		producerIDs: count{
			message: "producers were forgotten before their time for want of room: raise max.producer.ids or lower producer.id.expiration.ms",
			what:    "forgotten", also: []any{"limit", cfg.MaxProducerIDs},
		},
		transactionalIDs: count{
			message: "transactional ids were forgotten before their time for want of room: raise max.transactional.ids or lower transactional.id.expiration.ms",
			what:    "forgotten", also: []any{"limit", cfg.MaxTransactionalIDs},
		},
		skippedMarkers: count{
			message: "transactions ended without a marker in partitions that know their producer id with a newer epoch: somebody else writes with it, or an operator wrote a marker",
			what:    "partitions",
		},
	}
}

func (l *countLog) note(c machine.Counts) {
	l.add(&l.producerIDs, c.EvictedProducerIDs)
	l.add(&l.transactionalIDs, c.EvictedTransactionalIDs)
	l.add(&l.skippedMarkers, c.SkippedMarkers)
}

func (l *countLog) add(c *count, n int) {
	if n == 0 {
		return
	}
	c.inAll += n
	if now := l.now(); c.logged == 0 || now.Sub(c.loggedAt) >= countPause {
		l.log.Warn(c.message, append([]any{c.what, c.inAll - c.logged, "since_the_start", c.inAll}, c.also...)...)
		c.logged, c.loggedAt = c.inAll, now
	}
}
