package broker

import (
	"log/slog"
	"time"

	"github.com/strandline-io/strandline/broker/machine"
)

// evictionLog tells the operator how much was forgotten because a bound was reached: a producer that is forgotten too early has
// lost the protection from its own duplicates, or its transactional id. It belongs to the loop.
type evictionLog struct {
	log              *slog.Logger
	now              func() time.Time
	producerIDs      evictions
	transactionalIDs evictions
}

type evictions struct {
	limit    int
	inAll    int
	logged   int // of inAll, by the last line
	loggedAt time.Time
}

// evictionPause lies at least between two lines about the same bound.
const evictionPause = 10 * time.Second

func newEvictionLog(cfg Config) *evictionLog {
	return &evictionLog{
		log: cfg.Logger, now: cfg.Now,
		producerIDs: evictions{limit: cfg.MaxProducerIDs}, transactionalIDs: evictions{limit: cfg.MaxTransactionalIDs},
	}
}

func (l *evictionLog) note(e machine.Evicted) {
	l.add(&l.producerIDs, e.ProducerIDs,
		"producers were forgotten before their time for want of room: raise max.producer.ids or lower producer.id.expiration.ms")
	l.add(&l.transactionalIDs, e.TransactionalIDs,
		"transactional ids were forgotten before their time for want of room: raise max.transactional.ids or lower transactional.id.expiration.ms")
}

func (l *evictionLog) add(e *evictions, n int, message string) {
	if n == 0 {
		return
	}
	e.inAll += n
	if now := l.now(); e.logged == 0 || now.Sub(e.loggedAt) >= evictionPause {
		l.log.Warn(message, "forgotten", e.inAll-e.logged, "since_the_start", e.inAll, "limit", e.limit)
		e.logged, e.loggedAt = e.inAll, now
	}
}
