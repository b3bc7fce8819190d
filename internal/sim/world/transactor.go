package world

import "fmt"

// startTransactor starts one instance of a transactional producer. Now and then it starts its successor while it still
// runs: then it is a zombie, and must be fenced.
func (w *World) startTransactor(id string, rank, rounds int) {
	name := fmt.Sprintf("%s.%d", id, rank)
	w.startProducer(name, func(c *client) {
		succeeded := false
		s := &session{c: c, id: id, rank: rank, v2: w.chance(60), current: func() bool { return !succeeded }}
		alive := s.init(false)
		for round := 0; round < rounds; round++ {
			if !alive {
				if succeeded {
					return
				}
				if w.mode.lossy {
					c.createTopics() // they may be lost with the power
				}
				if !s.init(false) {
					return // the successor has it
				}
			}
			if !succeeded && rank < 5 && w.chance(25) && !w.leftOut(fmt.Sprintf("%s.%d", id, rank+1)) {
				succeeded = true
				w.startTransactor(id, rank+1, rounds-round)
			}
			alive = s.round(w.beginTransaction(fmt.Sprintf("%s-%d", name, round)))
			if w.chance(40) {
				c.sleep(w.Int64N(2 * secondInUs))
			}
		}
	})
}

// round is one transaction, ended or given up.
func (s *session) round(tx *transaction) bool {
	w := s.c.w
	for range 1 + w.IntN(4) {
		if !s.produceAll(tx, s.destinations()...) {
			return false
		}
		switch {
		case w.chance(5):
			s.c.sleep(w.Int64N(2 * transactionMs * msInUs))
		case w.chance(15):
			s.c.sleep(w.Int64N(300 * msInUs))
		}
	}
	return s.end(tx, w.chance(75))
}

// destinations draws one partition, or several.
func (s *session) destinations() []destination {
	w := s.c.w
	topics := []string{"in", "plain"}
	if !w.mode.lossy && w.chance(10) {
		topics = []string{[]string{volatileTopic, trimmedTopic}[w.IntN(2)], "plain"}
	}
	all := []destination{{topic: topics[w.IntN(2)], partition: w.Int32N(inputPartitions)}}
	if w.chance(30) {
		all = nil
		for _, topic := range topics {
			for i := range int32(inputPartitions) {
				if w.chance(50) {
					all = append(all, destination{topic: topic, partition: i})
				}
			}
		}
	}
	if len(all) == 0 {
		return []destination{{topic: topics[0]}}
	}
	return all
}
