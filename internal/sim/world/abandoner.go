package world

import "fmt"

// up is how long the broker has been up so far. Engine time, which timeouts go by, has moved on by that at least, unless
// the wall clock was set back: a restart then knows nothing of the time since the last unit.
func (w *World) up() int64 {
	if p := w.process; p != nil && !p.dead {
		return w.upUs + w.nowUs - p.startUs
	}
	return w.upUs
}

// runAbandoner begins a transaction, leaves it alone for longer than its timeout, whatever happens to the broker
// meanwhile, and then tries to commit: it must have been aborted.
func (c *client) runAbandoner() {
	w := c.w
	s := &session{c: c, id: c.name, rank: 1, v2: w.chance(60), current: func() bool { return true }}
	for round := range 2 {
		s.init(false)
		tx := w.beginTransaction(fmt.Sprintf("%s-%d", c.name, round))
		if !s.produce(tx, "plain", w.Int32N(inputPartitions), nil) {
			continue
		}
		due, jumps := w.up()+(transactionMs+500)*msInUs, w.jumpsBack
		for w.up() < due {
			c.sleep(100 * msInUs)
		}
		if s.end(tx, true) && jumps == w.jumpsBack {
			w.fail("timeouts: %s: transaction %s was committed when its time was over", c.name, tx.name)
		}
	}
}
