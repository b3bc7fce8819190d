// Command sarama does what a user does with sarama, step by step.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/strandline-io/strandline/test/clients/gopeers/step"
)

func main() {
	step.Main(map[string]func(string) error{"produce": produce, "idempotence": idempotence, "transactions": transactions,
		"committed": committed, "groups": groups, "admin": admin, "prepare": prepare, "kills": kills})
}

func config(more ...func(*sarama.Config)) *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Retry.Max, c.Producer.Retry.Backoff = 500, 100*time.Millisecond
	c.Metadata.Retry.Max, c.Metadata.Retry.Backoff = 200, 100*time.Millisecond
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	for _, f := range more {
		f(c)
	}
	return c
}

func idempotent(c *sarama.Config) {
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
}

func readCommitted(c *sarama.Config) { c.Consumer.IsolationLevel = sarama.ReadCommitted }

func message(topic, value string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(value), Value: sarama.StringEncoder(value)}
}

func topic(broker, name string, partitions int32) error {
	a, err := sarama.NewClusterAdmin([]string{broker}, config())
	if err != nil {
		return err
	}
	defer a.Close()
	return a.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
}

// send sends values one after the other, which sarama batches when they wait.
func send(broker, topic string, values []string, c *sarama.Config) error {
	p, err := sarama.NewSyncProducer([]string{broker}, c)
	if err != nil {
		return err
	}
	defer p.Close()
	var messages []*sarama.ProducerMessage
	for _, v := range values {
		messages = append(messages, message(topic, v))
	}
	return p.SendMessages(messages)
}

// read reads n values of one partition from its beginning.
func read(broker, topic string, partition int32, n int, c *sarama.Config) ([]string, error) {
	consumer, err := sarama.NewConsumer([]string{broker}, c)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	p, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var values []string
	for len(values) < n {
		select {
		case m := <-p.Messages():
			values = append(values, string(m.Value))
		case <-time.After(step.Patience):
			return nil, fmt.Errorf("%d of %d records arrived", len(values), n)
		}
	}
	return values, nil
}

// readBoth reads n values of a topic of two partitions: as many of each as its end offset at the isolation level allows.
func readBoth(broker, topic string, n int, c *sarama.Config) ([]string, error) {
	consumer, err := sarama.NewConsumer([]string{broker}, c)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	all := make(chan string)
	over := make(chan struct{})
	var both sync.WaitGroup
	defer both.Wait()
	defer close(over)
	for partition := range int32(2) {
		p, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		both.Go(func() {
			defer p.Close()
			for {
				select {
				case m := <-p.Messages():
					select {
					case all <- string(m.Value):
					case <-over:
						return
					}
				case <-over:
					return
				}
			}
		})
	}
	var values []string
	for len(values) < n {
		select {
		case v := <-all:
			values = append(values, v)
		case <-time.After(step.Patience):
			return nil, fmt.Errorf("%d of %d records arrived", len(values), n)
		}
	}
	return values, nil
}

func produce(broker string) error {
	want := step.Values("v", 0, 1000)
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy,
		sarama.CompressionLZ4, sarama.CompressionZSTD} {
		name := "sarama-" + codec.String()
		err := send(broker, name, want, config(func(c *sarama.Config) { c.Producer.Compression = codec }))
		if err != nil {
			return err
		}
		got, err := read(broker, name, 0, len(want), config())
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s: the records differ", codec)
		}
	}
	return nil
}

func idempotence(broker string) error {
	want := step.Values("v", 0, 2000)
	c := config(idempotent, func(c *sarama.Config) { c.Producer.Flush.MaxMessages = 50 })
	if err := send(broker, "sarama-idempotent", want, c); err != nil {
		return err
	}
	got, err := read(broker, "sarama-idempotent", 0, len(want), config())
	if err == nil && !slices.Equal(got, want) {
		err = errors.New("the records differ")
	}
	return err
}

func committed(broker string) error {
	n := step.Count()
	got, err := read(broker, "aborted", 0, n, config(readCommitted))
	if err != nil {
		return err
	}
	return step.Same(got, step.Values("kept-", 0, n))
}

// member is a group's member that hands out what it gets, and commits at the end of its session. (A commit goes by the
// connection of the fetches and waits behind them.)
type member struct {
	got    chan string
	claims chan []int32
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	for _, partitions := range s.Claims() {
		m.claims <- partitions
	}
	return nil
}

func (m *member) Cleanup(s sarama.ConsumerGroupSession) error {
	s.Commit()
	return nil
}

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case r, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			s.MarkMessage(r, "")
			m.got <- string(r.Value)
		case <-s.Context().Done():
			return nil
		}
	}
}

// join starts a member; stop ends it and waits until it has left.
func join(broker, topic, group string) (m *member, stop func() error, err error) {
	g, err := sarama.NewConsumerGroup([]string{broker}, group, config())
	if err != nil {
		return nil, nil, err
	}
	m = &member{got: make(chan string, 1000), claims: make(chan []int32, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := g.Consume(ctx, []string{topic}, m); err != nil {
				log.Print(err)
			}
		}
	}()
	return m, func() error {
		cancel()
		<-done
		return g.Close()
	}, nil
}

func groups(broker string) error {
	const name = "sarama-group"
	if err := topic(broker, name, 2); err != nil {
		return err
	}
	if err := send(broker, name, step.Values("v", 0, 200), config()); err != nil {
		return err
	}
	var members [2]*member
	var stops [2]func() error
	for i := range members {
		var err error
		if members[i], stops[i], err = join(broker, name, name); err != nil {
			return err
		}
	}
	got := map[string]bool{}
	shares := make([][]int32, 2)
	for len(got) < 200 || len(shares[0]) != 1 || len(shares[1]) != 1 {
		select {
		case v := <-members[0].got:
			got[v] = true
		case v := <-members[1].got:
			got[v] = true
		case shares[0] = <-members[0].claims:
		case shares[1] = <-members[1].claims:
		case <-time.After(step.Patience):
			return fmt.Errorf("%v, %d records", shares, len(got))
		}
	}
	if shares[0][0] == shares[1][0] {
		return errors.New("two members have one partition")
	}
	for _, stop := range stops {
		if err := stop(); err != nil {
			return err
		}
	}
	if err := send(broker, name, step.Values("v", 200, 250), config()); err != nil {
		return err
	}
	m, stop, err := join(broker, name, name)
	if err != nil {
		return err
	}
	var rest []string
	for len(rest) < 50 {
		select {
		case v := <-m.got:
			rest = append(rest, v)
		case <-m.claims:
		case <-time.After(step.Patience):
			return fmt.Errorf("%d records", len(rest))
		}
	}
	return errors.Join(stop(), step.Same(rest, step.Values("v", 200, 250)))
}
