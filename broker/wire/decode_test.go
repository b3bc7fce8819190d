package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestLargeProduceIsBounded: Produce frames may be large, so what they make the decoder allocate beside the records,
// which are not copied, has a bound of its own.
func TestLargeProduceIsBounded(t *testing.T) {
	const size, most = 20 << 20, 16 << 20
	f := func(name string, version int16, start []byte, fill byte) {
		t.Helper()
		body := append(bytes.Clone(start), bytes.Repeat([]byte{fill}, size)...)
		var err error
		got := allocatedBy(func() { _, err = Decode(Header{Key: KeyProduce, Version: version}, body) })
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: accepted", name)
		}
		if got > most {
			t.Errorf("%s: %d bytes allocated", name, got)
		}
	}
	fixed := []byte{0, 0, 1, 0, 0, 0, 1} // null id, acks, timeout
	n := binary.AppendUvarint(nil, size/4)
	f("topics", 9, append(bytes.Clone(fixed), n...), 1)
	f("partitions", 9, append(append(bytes.Clone(fixed), 2, 2, 'a'), n...), 0)
	// One topic without partitions, then tags without end.
	f("tags", 9, append(append(bytes.Clone(fixed), 2, 2, 'a', 1), n...), 0)
	f("old topics", 3, []byte{0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0x20, 0, 0}, 0)
}

func TestProduceRecordsAreNotCopied(t *testing.T) {
	for version := int16(3); version <= 13; version++ {
		req := kmsg.NewPtrProduceRequest()
		req.Version = version
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic = "t"
		for i := range int32(3) {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition, p.Records = i, bytes.Repeat([]byte{byte(i)}, 1000)
			topic.Partitions = append(topic.Partitions, p)
		}
		req.Topics = append(req.Topics, topic)
		body := req.AppendTo(nil)
		got, err := Decode(Header{Key: KeyProduce, Version: version}, body)
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		if version >= 13 {
			req.Topics[0].Topic = "" // by id
		}
		if diff := cmp.Diff(req, got, cmp.Comparer(func(a, b kmsg.Tags) bool { return a.Len() == b.Len() })); diff != "" {
			t.Errorf("version %d (-want +got):\n%s", version, diff)
		}
		records := got.(*kmsg.ProduceRequest).Topics[0].Partitions[1].Records
		at := bytes.Index(body, records)
		if &records[0] != &body[at] {
			t.Errorf("version %d copies records", version)
		}
	}
}

func TestDecodeRefusesTruncation(t *testing.T) {
	req := kmsg.NewPtrProduceRequest()
	req.Version = 9
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "topic"
	topic.Partitions = []kmsg.ProduceRequestTopicPartition{{Records: []byte("records")}}
	req.Topics = []kmsg.ProduceRequestTopic{topic}
	body := req.AppendTo(nil)
	for n := range body {
		if _, err := Decode(Header{Key: KeyProduce, Version: 9}, body[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d of %d bytes: %v", n, len(body), err)
		}
	}
}
