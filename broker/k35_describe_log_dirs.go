package broker

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/segment"
)

// memoryDir is what DescribeLogDirs calls the place of a broker without a data folder.
const memoryDir = "memory"

// serveDescribeLogDirs answers how much each partition takes, journal included, from published state. Sizes of the whole disk
// are not told.
func serveDescribeLogDirs(c *conn, s *slot) error {
	req := s.req.(*kmsg.DescribeLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	if !c.mayCluster(s, kmsg.ACLOperationDescribe) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code // from version 3 on; before, there is nothing to be seen
		return c.respond(s, resp)
	}
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir, dir.TotalBytes, dir.UsableBytes = c.b.cfg.dataDir(), -1, -1
	for _, t := range c.b.describedTopics(req) {
		rt := kmsg.NewDescribeLogDirsResponseDirTopic()
		rt.Topic = t.topic.Name
		for _, number := range t.partitions {
			p, code := c.b.sizeOf(t.topic, number)
			if code == kerr.KafkaStorageError.Code {
				dir.ErrorCode = code
			} else if code == 0 {
				rt.Partitions = append(rt.Partitions, p)
			}
		}
		if len(rt.Partitions) > 0 {
			dir.Topics = append(dir.Topics, rt)
		}
	}
	resp.Dirs = append(resp.Dirs, dir)
	return c.respond(s, resp)
}

// describedTopic is a topic of a request with the partitions that exist of those asked for.
type describedTopic struct {
	topic      *machine.Topic
	partitions []int32
}

// describedTopics lists what a request names, or everything if it names nothing.
func (b *Broker) describedTopics(req *kmsg.DescribeLogDirsRequest) []describedTopic {
	board := b.engine.Board()
	var all []describedTopic
	if req.Topics == nil {
		for _, t := range board.Topics() {
			d := describedTopic{topic: t}
			for i := range t.Partitions {
				d.partitions = append(d.partitions, int32(i))
			}
			all = append(all, d)
		}
		return all
	}
	for _, r := range req.Topics {
		t, ok := board.Topic(r.Topic)
		if !ok {
			continue
		}
		d := describedTopic{topic: t}
		seen := make(map[int32]bool)
		for _, number := range r.Partitions {
			if number >= 0 && int(number) < len(t.Partitions) && !seen[number] {
				seen[number] = true
				d.partitions = append(d.partitions, number)
			}
		}
		all = append(all, d)
	}
	return all
}

// maxSizeTries bounds how often a size is asked for again because files went away meanwhile.
const maxSizeTries = 4

func (b *Broker) sizeOf(t *machine.Topic, number int32) (r kmsg.DescribeLogDirsResponseDirTopicPartition, code int16) {
	r.Partition = number
	for range maxSizeTries {
		p := b.engine.Board().Partition(t.Partitions[number])
		if p == nil {
			return r, kerr.UnknownTopicOrPartition.Code
		}
		size, err := p.Load().Log.SizeBytes()
		if err == nil {
			r.Size = size
			return r, 0
		}
		if !errors.Is(err, segment.ErrMoved) {
			b.cfg.Logger.Error("cannot tell the size of a partition", "topic", t.Name, "partition", number, "error", err)
			return r, kerr.KafkaStorageError.Code
		}
	}
	return r, kerr.UnknownTopicOrPartition.Code
}
