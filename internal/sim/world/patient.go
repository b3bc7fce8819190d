package world

import "fmt"

// patientMs is a transaction timeout that no pause exceeds.
const patientMs = 900_000

// runPatient keeps transactions open over crashes and goes on with them, as the same client, behind the restart (V5). As
// nobody else has its id and no clock has jumped far, it must always succeed.
func (c *client) runPatient() {
	w := c.w
	s := &session{c: c, id: c.name, rank: 1, v2: w.chance(60), timeoutMs: patientMs, current: func() bool { return true }}
	for round := 0; round < 3; round++ {
		s.takeID()
		tx := w.beginTransaction(fmt.Sprintf("%s-%d", c.name, round))
		ok := true
		for n := 2 + w.IntN(3); n > 0 && ok; n-- {
			ok = s.produceAll(tx, destination{topic: "in", partition: w.Int32N(inputPartitions)})
			crashes := w.stats.Crashes
			c.await(secondInUs+w.Int64N(4*secondInUs), func() bool { return w.stats.Crashes >= crashes+2 })
		}
		ok = ok && s.end(tx, true)
		if !ok && w.wallJumpedMs < patientMs/2 {
			w.fail("V5: %s: transaction %s of epoch %d was refused, nobody but its client has ended it", c.name, tx.name, s.epoch)
		}
		if !ok {
			s.takeID() // what was refused may be open, and would stay so for longer than the world waits
		}
	}
}

// takeID initialises the producer until nothing is under way that would fence this very client.
func (s *session) takeID() {
	for s.init(false); s.lateInit; s.init(false) {
		s.c.sleep(15 * secondInUs)
	}
}
