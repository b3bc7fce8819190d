package main

import (
	"errors"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/strandline-io/strandline/test/clients/gopeers/step"
)

// copier copies one partition in transactions of ten records with the group's offset among them. Each third is aborted and
// done again. Whatever ends in an error begins anew, with a new producer, at the offset that was committed.
type copier struct {
	broker, from, to string
	count, attempts  int
	pause            time.Duration
}

func (c *copier) run() error {
	for since, last := time.Now(), int64(0); ; {
		done, err := c.some()
		switch {
		case err == nil:
			return nil
		case done > last:
			since, last = time.Now(), done
		case time.Since(since) > step.Patience:
			return fmt.Errorf("no progress at %d: %w", done, err)
		}
		log.Printf("at %d again after %v", done, err)
		step.Pause(100 * time.Millisecond)
	}
}

// some goes on from the committed offset until all is done or something fails; done is what was committed.
func (c *copier) some() (done int64, err error) {
	transactional := config(idempotent, func(s *sarama.Config) { s.Producer.Transaction.ID = c.to })
	p, err := sarama.NewAsyncProducer([]string{c.broker}, transactional)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	if done, err = c.committed(); err != nil {
		return 0, err
	}
	consumer, err := sarama.NewConsumer([]string{c.broker}, config(readCommitted))
	if err != nil {
		return done, err
	}
	defer consumer.Close()
	reader, err := consumer.ConsumePartition(c.from, 0, done)
	if err != nil {
		return done, err
	}
	defer reader.Close()
	for int(done) < c.count {
		var batch []*sarama.ConsumerMessage
		for len(batch) < min(10, c.count-int(done)) {
			select {
			case m := <-reader.Messages():
				batch = append(batch, m)
			case <-time.After(step.Patience):
				return done, errors.New("no record arrives")
			}
		}
		for aborted := true; aborted; {
			c.attempts++
			if aborted, err = c.transaction(p, batch, c.attempts%3 == 0); err != nil {
				return done, err
			}
		}
		done = batch[len(batch)-1].Offset + 1
		step.Pause(c.pause)
	}
	return done, nil
}

func (c *copier) transaction(p sarama.AsyncProducer, batch []*sarama.ConsumerMessage, abort bool) (aborted bool, err error) {
	if err := p.BeginTxn(); err != nil {
		return false, err
	}
	for _, m := range batch {
		p.Input() <- message(c.to, string(m.Value))
	}
	for range batch {
		select {
		case <-p.Successes():
		case err := <-p.Errors():
			return false, err
		}
	}
	for _, m := range batch {
		if err := p.AddMessageToTxn(m, c.from, nil); err != nil {
			return false, err
		}
	}
	if abort {
		return true, p.AbortTxn()
	}
	return false, p.CommitTxn()
}

func (c *copier) committed() (int64, error) {
	a, err := sarama.NewClusterAdmin([]string{c.broker}, config())
	if err != nil {
		return 0, err
	}
	defer a.Close()
	resp, err := a.ListConsumerGroupOffsets(c.from, map[string][]int32{c.from: {0}})
	if err != nil {
		return 0, err
	}
	block := resp.GetBlock(c.from, 0)
	if block == nil || block.Err != sarama.ErrNoError {
		return 0, fmt.Errorf("no committed offset: %+v", block)
	}
	return max(0, block.Offset), nil
}

func transactions(broker string) error {
	if err := topic(broker, "sarama-out", 2); err != nil {
		return err
	}
	if err := send(broker, "sarama-in", step.Values("v", 0, 300), config()); err != nil {
		return err
	}
	c := &copier{broker: broker, from: "sarama-in", to: "sarama-out", count: 300}
	if err := c.run(); err != nil {
		return err
	}
	if c.attempts <= 30 {
		return errors.New("nothing was aborted")
	}
	got, err := readBoth(broker, "sarama-out", 300, config(readCommitted))
	if err != nil {
		return err
	}
	dirty, err := readBoth(broker, "sarama-out", 310, config())
	if err == nil && len(dirty) <= len(got) {
		err = errors.New("read_uncommitted shows no aborted record")
	}
	return errors.Join(err, step.Same(got, step.Values("v", 0, 300)))
}

// prepare makes what the kills need.
func prepare(broker string) error {
	return errors.Join(topic(broker, "sarama-killed", 1), topic(broker, "sarama-kills-out", 2),
		send(broker, "sarama-kills-in", step.Values("v", 0, 300), config()))
}

// kills sends idempotent records and copies in transactions while somebody else kills the broker.
func kills(broker string) error {
	p, err := sarama.NewSyncProducer([]string{broker}, config(idempotent))
	if err != nil {
		return err
	}
	want := step.Values("v", 0, 500)
	for _, v := range want {
		if _, _, err := p.SendMessage(message("sarama-killed", v)); err != nil {
			return err
		}
		step.Pause(time.Millisecond)
	}
	p.Close()
	var got []string
	if err := step.Retry(func() (err error) {
		got, err = read(broker, "sarama-killed", 0, len(want), config())
		return err
	}); err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("the idempotent records differ: %w", step.Same(got, want))
	}
	c := &copier{broker: broker, from: "sarama-kills-in", to: "sarama-kills-out", count: 300, pause: 50 * time.Millisecond}
	if err := c.run(); err != nil {
		return err
	}
	return step.Retry(func() error {
		got, err := readBoth(broker, "sarama-kills-out", 300, config(readCommitted))
		if err != nil {
			return err
		}
		return step.Same(got, step.Values("v", 0, 300))
	})
}

func admin(broker string) error {
	if err := topic(broker, "sarama-admin", 2); err != nil {
		return err
	}
	a, err := sarama.NewClusterAdmin([]string{broker}, config())
	if err != nil {
		return err
	}
	defer a.Close()
	if err := a.CreatePartitions("sarama-admin", 3, nil, false); err != nil {
		return err
	}
	if described, err := a.DescribeTopics([]string{"sarama-admin"}); err != nil || len(described[0].Partitions) != 3 {
		return fmt.Errorf("described %v, %w", described, err)
	}
	manual := config(func(c *sarama.Config) { c.Producer.Partitioner = sarama.NewManualPartitioner })
	if err := send(broker, "sarama-admin", step.Values("v", 0, 5), manual); err != nil { // partition 0
		return err
	}
	offset := func(at int64) (int64, error) {
		r, err := a.ListOffsets(map[string]map[int32]int64{"sarama-admin": {0: at}}, nil)
		if err != nil {
			return 0, err
		}
		return r["sarama-admin"][0].Offset, nil
	}
	if end, err := offset(sarama.OffsetNewest); err != nil || end != 5 {
		return fmt.Errorf("end offset %d, %w", end, err)
	}
	commit := map[string]map[int32]sarama.OffsetAndMetadata{"sarama-admin": {0: {Offset: 4}}}
	if _, err := a.AlterConsumerGroupOffsets("sarama-admins", commit, nil); err != nil {
		return err
	}
	if found, err := a.ListConsumerGroups(); err != nil || found["sarama-admins"] == "" && len(found) == 0 {
		return fmt.Errorf("groups %v, %w", found, err)
	}
	if described, err := a.DescribeConsumerGroups([]string{"sarama-admins"}); err != nil || described[0].State != "Empty" {
		return fmt.Errorf("described %v, %w", described, err)
	}
	if err := a.DeleteRecords("sarama-admin", map[int32]int64{0: 3}); err != nil {
		return err
	}
	if first, err := offset(sarama.OffsetOldest); err != nil || first != 3 {
		return fmt.Errorf("first offset %d, %w", first, err)
	}
	configs, err := a.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: "sarama-admin"}},
		sarama.DescribeConfigsOptions{})
	if err != nil || len(configs) != 1 || len(configs[0].Configs) == 0 {
		return fmt.Errorf("configs %v, %w", configs, err)
	}
	if err := errors.Join(a.DeleteConsumerGroup("sarama-admins"), a.DeleteTopic("sarama-admin")); err != nil {
		return err
	}
	if left, err := a.ListTopics(); err != nil || left["sarama-admin"].NumPartitions != 0 {
		return fmt.Errorf("topics %v, %w", left, err)
	}
	return nil
}
