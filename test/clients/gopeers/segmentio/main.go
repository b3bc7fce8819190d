// Command segmentio does what a user does with segmentio/kafka-go, step by step.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/strandline-io/strandline/test/clients/gopeers/step"
)

func main() {
	step.Main(map[string]func(string) error{"produce": produce, "transactions": transactions, "groups": groups, "admin": admin, "prepare": prepare, "kills": kills})
}

var background = context.Background()

func client(broker string) *kafka.Client { return &kafka.Client{Addr: kafka.TCP(broker)} }

func topic(broker, name string, partitions int) error {
	r, err := client(broker).CreateTopics(background, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: name, NumPartitions: partitions, ReplicationFactor: 1}}})
	if err != nil {
		return err
	}
	return r.Errors[name]
}

func send(broker, topic string, values []string, codec kafka.Compression) error {
	w := &kafka.Writer{Addr: kafka.TCP(broker), Topic: topic, RequiredAcks: kafka.RequireAll, Compression: codec,
		BatchTimeout: 10 * time.Millisecond}
	defer w.Close()
	var messages []kafka.Message
	for _, v := range values {
		messages = append(messages, kafka.Message{Key: []byte(v), Value: []byte(v)})
	}
	return w.WriteMessages(background, messages...)
}

// read reads n values of partition 0 from its beginning.
func read(broker, topic string, n int, isolation kafka.IsolationLevel) (values []string, err error) {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker}, Topic: topic, IsolationLevel: isolation,
		MaxWait: 200 * time.Millisecond})
	defer r.Close()
	for len(values) < n {
		ctx, cancel := context.WithTimeout(background, step.Patience)
		m, err := r.ReadMessage(ctx)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("after %d of %d records: %w", len(values), n, err)
		}
		values = append(values, string(m.Value))
	}
	return values, nil
}

func produce(broker string) error {
	want := step.Values("v", 0, 1000)
	for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		name := "segmentio-" + strconv.Itoa(int(codec))
		if err := topic(broker, name, 1); err != nil {
			return err
		}
		if err := send(broker, name, want, codec); err != nil {
			return err
		}
		got, err := read(broker, name, len(want), kafka.ReadUncommitted)
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s: the records differ", codec)
		}
	}
	return nil
}

// transactions moves a group's offsets in transactions by the client's single requests: it has no producer for them.
func transactions(broker string) error {
	if err := topic(broker, "segmentio-txn", 1); err != nil {
		return err
	}
	c := client(broker)
	const id, group = "segmentio", "segmentio-txn"
	p, err := c.InitProducerID(background, &kafka.InitProducerIDRequest{TransactionalID: id, TransactionTimeoutMs: 30000})
	if err = errors.Join(err, errorOf(p)); err != nil {
		return err
	}
	producer := *p.Producer
	for i, commit := range []bool{true, false} {
		added, err := c.AddOffsetsToTxn(background, &kafka.AddOffsetsToTxnRequest{TransactionalID: id,
			ProducerID: producer.ProducerID, ProducerEpoch: producer.ProducerEpoch, GroupID: group})
		if err == nil {
			err = added.Error
		}
		if err != nil {
			return err
		}
		moved, err := c.TxnOffsetCommit(background, &kafka.TxnOffsetCommitRequest{TransactionalID: id, GroupID: group,
			ProducerID: producer.ProducerID, ProducerEpoch: producer.ProducerEpoch, GenerationID: -1,
			Topics: map[string][]kafka.TxnOffsetCommit{group: {{Partition: 0, Offset: int64(i + 1)}}}})
		if err == nil {
			err = moved.Topics[group][0].Error
		}
		if err != nil {
			return err
		}
		ended, err := c.EndTxn(background, &kafka.EndTxnRequest{TransactionalID: id, ProducerID: producer.ProducerID,
			ProducerEpoch: producer.ProducerEpoch, Committed: commit})
		if err == nil {
			err = ended.Error
		}
		if err != nil {
			return err
		}
	}
	found, err := c.OffsetFetch(background, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{group: {0}}})
	if err != nil {
		return err
	}
	if offset := found.Topics[group][0].CommittedOffset; offset != 1 {
		return fmt.Errorf("the committed transaction set 1 and the aborted one 2, but the offset is %d", offset)
	}
	return nil
}

func errorOf(r *kafka.InitProducerIDResponse) error {
	if r == nil {
		return nil
	}
	return r.Error
}

// join reads as a member of a group until ctx is over, committing each record.
func join(ctx context.Context, broker, topic, group string, got func(member int, m kafka.Message), member int) {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker}, GroupID: group, GroupTopics: []string{topic},
		MaxWait: 200 * time.Millisecond, StartOffset: kafka.FirstOffset, HeartbeatInterval: 500 * time.Millisecond,
		JoinGroupBackoff: 200 * time.Millisecond})
	defer r.Close()
	for ctx.Err() == nil {
		m, err := r.FetchMessage(ctx)
		if err == nil {
			err = r.CommitMessages(ctx, m)
			got(member, m)
		}
		if err != nil && ctx.Err() == nil {
			log.Print(err)
		}
	}
}

// grouped runs members until enough says so.
func grouped(broker, topic string, members int, enough func(member int, m kafka.Message) bool) error {
	ctx, cancel := context.WithTimeout(background, step.Patience)
	defer cancel()
	var mu sync.Mutex
	var reached bool
	var all sync.WaitGroup
	for i := range members {
		all.Go(func() {
			join(ctx, broker, topic, topic, func(member int, m kafka.Message) {
				mu.Lock()
				defer mu.Unlock()
				if reached = enough(member, m) || reached; reached {
					cancel()
				}
			}, i)
		})
	}
	all.Wait()
	if !reached {
		return errors.New("the members did not get what they should")
	}
	return nil
}

func groups(broker string) error {
	const name = "segmentio-group"
	if err := topic(broker, name, 2); err != nil {
		return err
	}
	// Records go on coming, so that each member can show which partition it has.
	stop := make(chan struct{})
	sent := make(chan int, 1)
	failed := make(chan error, 1)
	go func() {
		for n := 0; ; n += 20 {
			select {
			case <-stop:
				sent <- n
				return
			default:
				if err := send(broker, name, step.Values("v", n, n+20), 0); err != nil {
					failed <- err
				}
				step.Pause(50 * time.Millisecond)
			}
		}
	}()
	got, owners := map[string]bool{}, map[int]int{}
	err := grouped(broker, name, 2, func(member int, m kafka.Message) bool {
		got[string(m.Value)] = true
		owners[m.Partition] = member
		return len(got) >= 200 && len(owners) == 2 && owners[0] != owners[1]
	})
	close(stop)
	n := <-sent
	select {
	case err = <-failed:
	default:
	}
	if err != nil {
		return err
	}
	return grouped(broker, name, 1, func(_ int, m kafka.Message) bool {
		if v := string(m.Value); got[v] {
			log.Printf("%s comes again", v)
		} else {
			got[v] = true
		}
		return len(got) == n
	})
}

func prepare(broker string) error { return topic(broker, "segmentio-killed", 1) }

// kills sends records while somebody else kills the broker. The writer is not idempotent: each record is there at least once.
func kills(broker string) error {
	w := &kafka.Writer{Addr: kafka.TCP(broker), Topic: "segmentio-killed", RequiredAcks: kafka.RequireAll,
		BatchTimeout: time.Millisecond, MaxAttempts: 100, WriteBackoffMin: 50 * time.Millisecond,
		WriteBackoffMax: 200 * time.Millisecond, ReadTimeout: 2 * time.Second}
	defer w.Close()
	want := step.Values("v", 0, 600)
	for _, v := range want {
		if err := step.Retry(func() error { return w.WriteMessages(background, kafka.Message{Value: []byte(v)}) }); err != nil {
			return err
		}
		step.Pause(5 * time.Millisecond) // long enough for several kills
	}
	got := map[string]bool{}
	if err := step.Retry(func() error {
		end, err := client(broker).ListOffsets(background, &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{"segmentio-killed": {kafka.LastOffsetOf(0)}}})
		if err != nil {
			return err
		}
		n := int(end.Topics["segmentio-killed"][0].LastOffset)
		log.Printf("%d records for %d", n, len(want))
		values, err := read(broker, "segmentio-killed", n, kafka.ReadCommitted)
		for _, v := range values {
			got[v] = true
		}
		return err
	}); err != nil {
		return err
	}
	for _, v := range want {
		if !got[v] {
			return fmt.Errorf("%s is lost", v)
		}
	}
	return nil
}

func admin(broker string) error {
	if err := topic(broker, "segmentio-admin", 1); err != nil {
		return err
	}
	c := client(broker)
	more, err := c.CreatePartitions(background, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{
		{Name: "segmentio-admin", Count: 2}}})
	if err = errors.Join(err, more.Errors["segmentio-admin"]); err != nil {
		return err
	}
	c = &kafka.Client{Addr: kafka.TCP(broker), Transport: &kafka.Transport{}} // that of before keeps metadata for a while
	meta, err := c.Metadata(background, &kafka.MetadataRequest{Topics: []string{"segmentio-admin"}})
	if err != nil || len(meta.Topics[0].Partitions) != 2 {
		return fmt.Errorf("metadata %+v, %w", meta, err)
	}
	commit, err := c.OffsetCommit(background, &kafka.OffsetCommitRequest{GroupID: "segmentio-admins", GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{"segmentio-admin": {{Partition: 0, Offset: 7}}}})
	if err != nil || commit.Topics["segmentio-admin"][0].Error != nil {
		return fmt.Errorf("commit %+v, %w", commit, err)
	}
	listed, err := c.ListGroups(background, &kafka.ListGroupsRequest{})
	if err != nil || !slices.ContainsFunc(listed.Groups, func(g kafka.ListGroupsResponseGroup) bool {
		return g.GroupID == "segmentio-admins"
	}) {
		return fmt.Errorf("groups %+v, %w", listed, err)
	}
	described, err := c.DescribeGroups(background, &kafka.DescribeGroupsRequest{GroupIDs: []string{"segmentio-admins"}})
	if err != nil || described.Groups[0].GroupState != "Empty" {
		return fmt.Errorf("described %+v, %w", described, err)
	}
	configs, err := c.DescribeConfigs(background, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: "segmentio-admin"}}})
	if err != nil || len(configs.Resources[0].ConfigEntries) == 0 {
		return fmt.Errorf("configs %+v, %w", configs, err)
	}
	gone, err := c.DeleteGroups(background, &kafka.DeleteGroupsRequest{GroupIDs: []string{"segmentio-admins"}})
	if err = errors.Join(err, gone.Errors["segmentio-admins"]); err != nil {
		return err
	}
	deleted, err := c.DeleteTopics(background, &kafka.DeleteTopicsRequest{Topics: []string{"segmentio-admin"}})
	return errors.Join(err, deleted.Errors["segmentio-admin"])
}
