package producer

import "github.com/strandline-io/strandline/internal/mutant"

// Table holds the producers of all partitions and bounds their number. Producers with an open transaction are never
// forgotten; the others are, the one that was idle for the longest first.
type Table struct {
	cfg     Config
	idle    list
	count   int // entries, idle and open
	refused refusals
}

// NewTable returns an empty table.
func NewTable(cfg Config) *Table { return &Table{cfg: cfg.orDefaults()} }

// NewPartition adds a partition under an id of the caller's choosing.
func (t *Table) NewPartition(id uint32) *Partition { return &Partition{table: t, id: id} }

// Name points to one producer in one partition.
type Name struct {
	Partition  uint32
	ProducerID int64
}

// Full reports that a new producer needs another one's place: see Oldest.
func (t *Table) Full() bool { return t.count >= t.cfg.MaxEntries }

// Oldest is the producer that was idle for the longest; ok is false if all have open transactions.
func (t *Table) Oldest() (n Name, ok bool) {
	if t.idle.first == nil {
		return Name{}, false
	}
	return Name{Partition: t.idle.first.partition.id, ProducerID: t.idle.first.id}, true
}

// NextExpiry is the engine time at which Oldest is to be forgotten: when it expires, or long ago if there are more producers
// than the bound allows, which an earlier start may have left behind.
func (t *Table) NextExpiry() (engineMs int64, ok bool) {
	if t.idle.first == nil {
		return 0, false
	}
	if t.count > t.cfg.MaxEntries {
		return t.idle.first.touchedMs, true
	}
	if mutant.On("producers expire at half their time") {
		return t.idle.first.touchedMs + t.cfg.ExpirationMs/2, true
	}
	return t.idle.first.touchedMs + t.cfg.ExpirationMs, true
}

// Expired reports whether Oldest has expired at engine time nowMs, whatever the bound.
func (t *Table) Expired(nowMs int64) bool {
	return t.idle.first != nil && t.idle.first.touchedMs+t.cfg.ExpirationMs <= nowMs
}

// Len is the number of remembered pairs of partition and producer id.
func (t *Table) Len() int { return t.count }
