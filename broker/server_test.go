package broker_test

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/broker/record"
)

// patience is how long a test waits for what should happen at once.
const patience = 20 * time.Second

// rawClient speaks the protocol over one connection, without a client library's help.
type rawClient struct {
	t      testing.TB
	conn   net.Conn
	lastID int32
}

func dial(t testing.TB, b *brokertest.Broker) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return &rawClient{t: t, conn: conn}
}

// send writes a request and returns its correlation id.
func (c *rawClient) send(req kmsg.Request) int32 {
	c.t.Helper()
	c.lastID++
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw")).AppendRequest(nil, req, c.lastID)
	if _, err := c.conn.Write(frame); err != nil {
		c.t.Fatal(err)
	}
	return c.lastID
}

// frame reads one response frame without its length.
func (c *rawClient) frame() []byte {
	c.t.Helper()
	var length [4]byte
	if _, err := io.ReadFull(c.conn, length[:]); err != nil {
		c.t.Fatalf("reading a response: %v", err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(c.conn, frame); err != nil {
		c.t.Fatalf("reading a response: %v", err)
	}
	return frame
}

// receive reads the response to the request with this correlation id.
func (c *rawClient) receive(id int32, resp kmsg.Response) {
	c.t.Helper()
	frame := c.frame()
	if got := int32(binary.BigEndian.Uint32(frame)); got != id {
		c.t.Fatalf("response to request %d, want %d", got, id)
	}
	body := frame[4:]
	if resp.IsFlexible() && resp.Key() != 18 {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		c.t.Fatalf("%T version %d: %v", resp, resp.GetVersion(), err)
	}
}

// ask sends a request and reads its response.
func ask[R kmsg.Response](c *rawClient, req kmsg.Request) R {
	c.t.Helper()
	resp := req.ResponseKind()
	c.receive(c.send(req), resp)
	return resp.(R)
}

// expectClosed waits until the broker closes the connection and returns what it sent before.
func (c *rawClient) expectClosed() []byte {
	c.t.Helper()
	rest, err := io.ReadAll(c.conn)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		c.t.Fatal("the broker keeps the connection open")
	}
	return rest
}

// createTopic makes a topic with settings as name, value pairs and returns its id.
func createTopic(c *rawClient, name string, partitions int32, settings ...string) [16]byte {
	c.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	for pair := range slices.Chunk(settings, 2) {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = pair[0], &pair[1]
		topic.Configs = append(topic.Configs, config)
	}
	req.Topics = append(req.Topics, topic)
	resp := ask[*kmsg.CreateTopicsResponse](c, req)
	if code := resp.Topics[0].ErrorCode; code != 0 {
		c.t.Fatalf("creating %s: code %d, %v", name, code, resp.Topics[0].ErrorMessage)
	}
	return resp.Topics[0].TopicID
}

// batchOf builds a batch with one record for each value, all at timestampMs.
func batchOf(timestampMs int64, values ...string) []byte {
	b := record.NewBuilder()
	for _, v := range values {
		b.Add(timestampMs, []byte("key"), []byte(v))
	}
	return b.Append(nil)
}

// produceRequest is a Produce of version 9 for one partition.
func produceRequest(topic string, partition int32, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 9, -1
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// produced is the outcome of a Produce for one partition.
func produced(resp *kmsg.ProduceResponse) *kmsg.ProduceResponseTopicPartition {
	return &resp.Topics[0].Partitions[0]
}

// produce writes a batch and returns its base offset.
func produce(c *rawClient, topic string, partition int32, batch []byte) int64 {
	c.t.Helper()
	p := produced(ask[*kmsg.ProduceResponse](c, produceRequest(topic, partition, batch)))
	if p.ErrorCode != 0 {
		c.t.Fatalf("producing to %s: code %d, %v", topic, p.ErrorCode, p.ErrorMessage)
	}
	return p.BaseOffset
}

// fetchRequest is a Fetch of version 12 for one partition that waits for nothing.
func fetchRequest(topic string, partition int32, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxBytes, req.MinBytes = 12, 1<<20, 1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func fetched(resp *kmsg.FetchResponse) *kmsg.FetchResponseTopicPartition {
	return &resp.Topics[0].Partitions[0]
}

// valuesOf decodes the values of uncompressed batches; control batches are left out.
func valuesOf(t testing.TB, batches []byte) (values []string) {
	t.Helper()
	for len(batches) > 0 {
		h, err := record.ParseHeader(batches)
		if err != nil {
			t.Fatal(err)
		}
		if !record.CheckCRC(batches[:h.SizeBytes]) {
			t.Fatal("a fetched batch has a wrong CRC")
		}
		if !h.Control() {
			it := record.Records(batches[record.HeaderSize:h.SizeBytes], h.RecordCount)
			var r record.Record
			for it.Next(&r) {
				values = append(values, string(r.Value))
			}
			if it.Err() != nil {
				t.Fatal(it.Err())
			}
		}
		batches = batches[h.SizeBytes:]
	}
	return values
}

// eventually checks again and again until ok, giving the broker's goroutines room.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not in %v: %s", patience, what)
		case <-tick.C:
		}
	}
}
