package machine

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A refusal is the protocol's no: a code and a sentence that says what happened, with which value, and what to do.
type refusal struct {
	code    *kerr.Error
	message string
}

func refuse(code *kerr.Error, format string, args ...any) *refusal {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// maxTopicNameBytes is Apache Kafka's bound; a folder's name is made of it.
const maxTopicNameBytes = 249

// internalTopics are kept inside the machine here; a topic by that name would mislead tools.
func internalTopic(name string) bool {
	return name == "__consumer_offsets" || name == "__transaction_state" || name == "__share_group_state"
}

// checkTopicName applies Apache Kafka's rules to the name of a topic that is to be created.
func (m *Machine) checkTopicName(name string) *refusal {
	switch {
	case name == "":
		return refuse(kerr.InvalidTopicException, "the topic has no name")
	case name == "." || name == "..":
		return refuse(kerr.InvalidTopicException, "a topic cannot be called %q", name)
	case len(name) > maxTopicNameBytes:
		return refuse(kerr.InvalidTopicException, "the topic's name has %d characters, at most %d are allowed", len(name), maxTopicNameBytes)
	case internalTopic(name):
		return refuse(kerr.InvalidTopicException, "%s is reserved, this broker keeps its content elsewhere", name)
	}
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return refuse(kerr.InvalidTopicException, "the topic's name %q holds %q; letters, digits, '.', '_' and '-' are allowed", name, c)
		}
	}
	if m.topics[name] != nil {
		return refuse(kerr.TopicAlreadyExists, "topic %s exists already", name)
	}
	if other, taken := m.collisions[collisionKey(name)]; taken {
		return refuse(kerr.InvalidTopicException, "topic %s collides with %s: '.' and '_' look alike in metrics", name, other)
	}
	return nil
}

// checkPartitionCount bounds a topic that has, or is to have, total partitions, added of them new.
func (m *Machine) checkPartitionCount(total, added int32) *refusal {
	switch {
	case total < 1:
		return refuse(kerr.InvalidPartitions, "%d partitions are not possible, at least 1 is", total)
	case total > m.cfg.MaxPartitionsPerTopic:
		return refuse(kerr.InvalidPartitions, "%d partitions are too many, a topic can have %d", total, m.cfg.MaxPartitionsPerTopic)
	case len(m.partitions)+int(added) > m.cfg.MaxPartitions, uint64(m.nextPartition)+uint64(added) > maxPartitionID:
		return refuse(kerr.PolicyViolation, "%d more partitions are too many, the broker has %d and can have %d: delete topics or raise the limit",
			added, len(m.partitions), m.cfg.MaxPartitions)
	}
	return nil
}

// createTopic makes a checked topic.
func (m *Machine) createTopic(name string, partitions int32, settings Settings) *topic {
	c := topicCreated{
		name: name, id: m.newUUID(), firstID: m.nextPartition, partitions: partitions,
		settingsVersion: m.settingsVersion + 1, settings: settings,
	}
	m.record(kindTopicCreated, c.append(m.beginRecord()))
	t := m.topics[name]
	m.step.out.Topics = append(m.step.out.Topics, TopicChange{Topic: *t.Topic})
	return t
}

// timesNamed tells for each of a request's n items how often its name stands in the request, 0 if an item before it has the same
// name and is answered for all of them.
func timesNamed[K comparable](n int, nameOf func(i int) K) []int {
	times := make([]int, n)
	first := make(map[K]int, n)
	for i := range times {
		at, before := first[nameOf(i)]
		if !before {
			at = i
			first[nameOf(i)] = i
		}
		times[at]++
	}
	return times
}

// refuseTwice is the answer to a name that stands in a request more than once: what was meant cannot be known.
func refuseTwice(what string, times int) *refusal {
	return refuse(kerr.InvalidRequest, "the request names topic %q %d times", what, times)
}
