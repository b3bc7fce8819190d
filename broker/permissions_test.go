package broker_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/wire"
)

const (
	topicDenied, groupDenied, clusterDenied, idDenied = 29, 30, 31, 53

	opRead, opWrite, opCreate, opDelete, opAlter, opDescribe = kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationCreate,
		kmsg.ACLOperationDelete, kmsg.ACLOperationAlter, kmsg.ACLOperationDescribe
	opClusterAction, opDescribeConfigs, opAlterConfigs, opIdempotentWrite = kmsg.ACLOperationClusterAction,
		kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationAlterConfigs, kmsg.ACLOperationIdempotentWrite
)

func onTopic(op kmsg.ACLOperation) machine.Access {
	return machine.Access{Operation: op, Resource: kmsg.ACLResourceTypeTopic, Name: "t"}
}

func onGroup(op kmsg.ACLOperation) machine.Access {
	return machine.Access{Operation: op, Resource: kmsg.ACLResourceTypeGroup, Name: "g"}
}

func onCluster(op kmsg.ACLOperation) machine.Access {
	return machine.Access{Operation: op, Resource: kmsg.ACLResourceTypeCluster, Name: "kafka-cluster"}
}

func onID(op kmsg.ACLOperation) machine.Access {
	return machine.Access{Operation: op, Resource: kmsg.ACLResourceTypeTransactionalId, Name: "pay"}
}

// permission is a request that is refused to whoever lacks something, alone or together.
type permission struct {
	lacks   []machine.Access
	code    int16 // 0: the answer leaves out what may not be seen
	from    int16 // the first version to which this applies
	upTo    int16 // the last one, 0 is the newest
	request string
}

func lacking(code int16, request string, lacks ...machine.Access) permission {
	return permission{lacks: lacks, code: code, request: request}
}

func (p permission) versions(from, upTo int16) permission {
	p.from, p.upTo = from, upTo
	return p
}

// permissions by API key (kafka-eos.md F.3, and the table of Apache Kafka's documentation). The requests are JSON of kmsg's
// structs; ID stands for the topic's id. Keys with none may be used by everybody.
var permissions = map[int16][]permission{
	0: {
		lacking(topicDenied, producePlain, onTopic(opWrite)),
		lacking(idDenied, produceTransactional, onID(opWrite)),
	},
	1: {lacking(topicDenied, `{"MaxBytes":1000,"MinBytes":1,"SessionEpoch":-1,"Topics":[{"Topic":"t","TopicID":ID,"Partitions":[{"CurrentLeaderEpoch":-1,"LastFetchedEpoch":-1,"PartitionMaxBytes":100}]}]}`, onTopic(opRead))},
	2: {lacking(topicDenied, `{"ReplicaID":-1,"Topics":[{"Topic":"t","Partitions":[{"CurrentLeaderEpoch":-1,"Timestamp":-1}]}]}`, onTopic(opDescribe))},
	3: {lacking(topicDenied, `{"Topics":[{"Topic":"t"}]}`, onTopic(opDescribe)), lacking(0, `{}`, onTopic(opDescribe)).versions(1, 0)},
	8: {
		lacking(groupDenied, `{"Group":"g","Generation":-1,"Topics":[{"Topic":"t","TopicID":ID,"Partitions":[{"Offset":7}]}]}`, onGroup(opRead)),
		lacking(topicDenied, `{"Group":"g","Generation":-1,"Topics":[{"Topic":"t","TopicID":ID,"Partitions":[{"Offset":7}]}]}`, onTopic(opRead)),
	},
	9: {
		lacking(groupDenied, offsetFetch, onGroup(opDescribe)),
		lacking(topicDenied, offsetFetch, onTopic(opDescribe)),
	},
	10: {
		lacking(groupDenied, `{"CoordinatorKey":"g","CoordinatorKeys":["g"]}`, onGroup(opDescribe)),
		lacking(idDenied, `{"CoordinatorKey":"pay","CoordinatorKeys":["pay"],"CoordinatorType":1}`, onID(opDescribe)).versions(1, 0),
	},
	11: {lacking(groupDenied, `{"Group":"g","SessionTimeoutMillis":10000,"RebalanceTimeoutMillis":10000,"ProtocolType":"consumer","Protocols":[{"Name":"range"}]}`, onGroup(opRead))},
	12: {lacking(groupDenied, `{"Group":"g","MemberID":"m"}`, onGroup(opRead))},
	13: {lacking(groupDenied, `{"Group":"g","MemberID":"m","Members":[{"MemberID":"m"}]}`, onGroup(opRead))},
	14: {lacking(groupDenied, `{"Group":"g","MemberID":"m"}`, onGroup(opRead))},
	15: {lacking(groupDenied, `{"Groups":["g"]}`, onGroup(opDescribe))},
	16: {lacking(0, `{}`, onGroup(opDescribe), onCluster(opDescribe))},
	19: {lacking(topicDenied, `{"Topics":[{"Topic":"t","NumPartitions":1,"ReplicationFactor":1},{"Topic":"new","NumPartitions":1,"ReplicationFactor":1}]}`,
		onTopic(opCreate), onCluster(opCreate), machine.Access{Operation: opCreate, Resource: kmsg.ACLResourceTypeTopic, Name: "new"})},
	20: {lacking(topicDenied, `{"TopicNames":["t"],"Topics":[{"Topic":"t"}]}`, onTopic(opDelete))},
	21: {lacking(topicDenied, `{"Topics":[{"Topic":"t","Partitions":[{"Partition":0,"Offset":-1}]}]}`, onTopic(opDelete))},
	22: {
		lacking(idDenied, `{"TransactionalID":"pay","TransactionTimeoutMillis":1000,"ProducerID":-1,"ProducerEpoch":-1}`, onID(opWrite)),
		lacking(clusterDenied, `{"ProducerID":-1,"ProducerEpoch":-1}`, onCluster(opIdempotentWrite), machine.Access{Operation: opWrite, Resource: kmsg.ACLResourceTypeTopic}),
	},
	23: {lacking(topicDenied, `{"ReplicaID":-1,"Topics":[{"Topic":"t","Partitions":[{"CurrentLeaderEpoch":-1,"LeaderEpoch":1}]}]}`, onTopic(opDescribe))},
	24: {
		lacking(idDenied, addPartitions, onID(opWrite)).versions(0, 3),
		lacking(topicDenied, addPartitions, onTopic(opWrite)).versions(0, 3),
		lacking(clusterDenied, addPartitions, onCluster(opClusterAction)).versions(4, 0),
	},
	25: {
		lacking(idDenied, `{"TransactionalID":"pay","Group":"g"}`, onID(opWrite)),
		lacking(groupDenied, `{"TransactionalID":"pay","Group":"g"}`, onGroup(opRead)),
	},
	26: {lacking(idDenied, `{"TransactionalID":"pay","Commit":true}`, onID(opWrite))},
	27: {lacking(clusterDenied, `{"Markers":[{"ProducerID":PID,"ProducerEpoch":9,"Topics":[{"Topic":"t","Partitions":[0]}]}]}`, onCluster(opAlter), onCluster(opClusterAction))},
	28: {
		lacking(idDenied, txnOffsetCommit, onID(opWrite)),
		lacking(groupDenied, txnOffsetCommit, onGroup(opRead)),
		lacking(topicDenied, txnOffsetCommit, onTopic(opRead)),
	},
	32: {
		lacking(topicDenied, `{"Resources":[{"ResourceType":"TOPIC","ResourceName":"t"}]}`, onTopic(opDescribeConfigs)),
		lacking(clusterDenied, `{"Resources":[{"ResourceType":"BROKER","ResourceName":"1"}]}`, onCluster(opDescribeConfigs)),
		lacking(groupDenied, `{"Resources":[{"ResourceType":"GROUP_CONFIG","ResourceName":"g"}]}`, onGroup(opDescribeConfigs)),
	},
	33: {
		lacking(topicDenied, `{"Resources":[{"ResourceType":"TOPIC","ResourceName":"t","Configs":[{"Name":"segment.ms","Value":"9"}]}]}`, onTopic(opAlterConfigs)),
		lacking(clusterDenied, `{"Resources":[{"ResourceType":"BROKER","ResourceName":"1","Configs":[{"Name":"message.max.bytes","Value":"9"}]}]}`, onCluster(opAlterConfigs)),
		lacking(groupDenied, `{"Resources":[{"ResourceType":"GROUP_CONFIG","ResourceName":"g","Configs":[{"Name":"consumer.session.timeout.ms","Value":"50000"}]}]}`, onGroup(opAlterConfigs)),
	},
	35: {lacking(0, `{}`, onCluster(opDescribe)).versions(1, 2), lacking(clusterDenied, `{}`, onCluster(opDescribe)).versions(3, 0)},
	37: {lacking(topicDenied, `{"Topics":[{"Topic":"t","Count":5}]}`, onTopic(opAlter))},
	42: {lacking(groupDenied, `{"Groups":["g"]}`, onGroup(opDelete))},
	43: {lacking(clusterDenied, `{"Topics":[{"Topic":"t","Partitions":[0]}]}`, onCluster(opAlter))},
	44: {
		lacking(topicDenied, `{"Resources":[{"ResourceType":"TOPIC","ResourceName":"t","Configs":[{"Name":"segment.ms","Value":"9"}]}]}`, onTopic(opAlterConfigs)),
		lacking(clusterDenied, `{"Resources":[{"ResourceType":"BROKER","ResourceName":"1","Configs":[{"Name":"message.max.bytes","Value":"9"}]}]}`, onCluster(opAlterConfigs)),
		lacking(groupDenied, `{"Resources":[{"ResourceType":"GROUP_CONFIG","ResourceName":"g","Configs":[{"Name":"consumer.session.timeout.ms","Value":"50000"}]}]}`, onGroup(opAlterConfigs)),
	},
	45: {lacking(clusterDenied, `{"Topics":[{"Topic":"t","Partitions":[{"Partition":0,"Replicas":[1]}]}]}`, onCluster(opAlter))},
	46: {lacking(clusterDenied, `{}`, onCluster(opDescribe))},
	47: {
		lacking(groupDenied, `{"Group":"g","Topics":[{"Topic":"t","Partitions":[{"Partition":0}]}]}`, onGroup(opDelete)),
		lacking(topicDenied, `{"Group":"g","Topics":[{"Topic":"t","Partitions":[{"Partition":0}]}]}`, onTopic(opRead)),
	},
	48: {lacking(clusterDenied, `{}`, onCluster(opDescribeConfigs))},
	57: {lacking(clusterDenied, `{"FeatureUpdates":[{"Feature":"transaction.version","MaxVersionLevel":1,"AllowDowngrade":true,"UpgradeType":2}]}`, onCluster(opAlter))},
	61: {lacking(topicDenied, `{"Topics":[{"Topic":"t","Partitions":[0]}]}`, onTopic(opRead))},
	65: {lacking(idDenied, `{"TransactionalIDs":["pay"]}`, onID(opDescribe))},
	66: {lacking(0, `{"DurationFilterMillis":-1}`, onID(opDescribe))},
	68: {
		lacking(groupDenied, `{"Group":"g2","MemberID":"m","RebalanceTimeoutMillis":10000,"SubscribedTopicNames":["t"],"Topics":[]}`, machine.Access{Operation: opRead, Resource: kmsg.ACLResourceTypeGroup, Name: "g2"}),
		lacking(topicDenied, `{"Group":"g2","MemberID":"m","RebalanceTimeoutMillis":10000,"SubscribedTopicNames":["t"],"Topics":[]}`, onTopic(opDescribe)),
	},
	69: {
		lacking(groupDenied, `{"Groups":["g"]}`, onGroup(opDescribe)),
		lacking(topicDenied, `{"Groups":["members"]}`, onTopic(opDescribe)),
	},
	74: {lacking(clusterDenied, `{}`, onCluster(opDescribeConfigs))},
	75: {lacking(topicDenied, `{"Topics":[{"Topic":"t"}],"ResponsePartitionLimit":10}`, onTopic(opDescribe))},
}

const (
	producePlain         = `{"Acks":-1,"Topics":[{"Topic":"t","TopicID":ID,"Partitions":[{"Records":PLAIN}]}]}`
	produceTransactional = `{"TransactionID":"pay","Acks":-1,"Topics":[{"Topic":"t","TopicID":ID,"Partitions":[{"Records":TRANSACTIONAL}]}]}`
	offsetFetch          = `{"Group":"g","Topics":[{"Topic":"t","Partitions":[0]}],"Groups":[{"Group":"g","MemberEpoch":-1,"Topics":[{"Topic":"t","TopicID":ID,"Partitions":[0]}]}]}`
	addPartitions        = `{"TransactionalID":"pay","ProducerID":PID,"Topics":[{"Topic":"t","Partitions":[1]}],"Transactions":[{"TransactionalID":"pay","ProducerID":PID,"Topics":[{"Topic":"t","Partitions":[1]}]}]}`
	txnOffsetCommit      = `{"TransactionalID":"pay","ProducerID":PID,"Group":"g","Generation":-1,"Topics":[{"Topic":"t","Partitions":[{"Offset":3,"LeaderEpoch":-1}]}]}`
)

// forEverybody are the keys that need no permission: ApiVersions and DescribeCluster.
var forEverybody = []int16{18, 60}

// TestEveryKeyAsksForPermission: whoever lacks a permission gets the error of its kind of resource, in every version of every
// key, or does not see what is not for him; and nothing has happened.
func TestEveryKeyAsksForPermission(t *testing.T) {
	var denied atomic.Pointer[[]machine.Access]
	b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) {
		c.GroupConsumerSessionTimeoutMs, c.GroupConsumerMaxSessionTimeoutMs = 3_600_000, 3_600_000 // longer than the test
		broker.Authorize(c, func(_ *machine.Client, a machine.Access) bool {
			lacks := denied.Load()
			return lacks == nil || !slices.Contains(*lacks, a)
		})
	}))
	c := dial(t, b)
	w := prepare(c)
	before := w.picture()
	for _, api := range wire.APIs() {
		if len(permissions[api.Key]) == 0 && !slices.Contains(forEverybody, api.Key) {
			t.Errorf("no permission is listed for %s", api.Name)
		}
		for i, p := range permissions[api.Key] {
			if p.upTo == 0 {
				p.upTo = api.Max
			}
			for version := max(p.from, api.Min); version <= p.upTo; version++ {
				denied.Store(&p.lacks)
				resp := w.request(api.Key, version, p.request)
				denied.Store(nil)
				codes := map[int16]bool{}
				gatherCodes(reflect.ValueOf(resp), codes)
				var want []int16
				if p.code != 0 {
					want = []int16{p.code}
				}
				if got := sortedCodes(codes); !slices.Equal(got, want) {
					t.Errorf("%s version %d, permission %d: codes %d, want %d: %s", api.Name, version, i, got, want, text(resp))
				}
				if p.code == 0 && !isEmpty(resp) {
					t.Errorf("%s version %d shows what the client may not see: %s", api.Name, version, text(resp))
				}
				if diff := cmp.Diff(before, w.picture()); diff != "" {
					t.Fatalf("%s version %d, permission %d: something has happened (-before +after):\n%s", api.Name, version, i, diff)
				}
			}
		}
	}
}

// gatherCodes finds the errors of a response, wherever they are.
func gatherCodes(v reflect.Value, codes map[int16]bool) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			gatherCodes(v.Elem(), codes)
		}
	case reflect.Slice:
		for i := range v.Len() {
			gatherCodes(v.Index(i), codes)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Name == "ErrorCode" {
				if code := int16(v.Field(i).Int()); code != 0 {
					codes[code] = true
				}
			} else if f.IsExported() {
				gatherCodes(v.Field(i), codes)
			}
		}
	}
}

func sortedCodes(codes map[int16]bool) (all []int16) {
	for code := range codes {
		all = append(all, code)
	}
	slices.Sort(all)
	return all
}

// isEmpty reports that none of a response's lists names t, g or pay.
func isEmpty(resp kmsg.Response) bool {
	switch r := resp.(type) {
	case *kmsg.MetadataResponse:
		return !slices.ContainsFunc(r.Topics, func(t kmsg.MetadataResponseTopic) bool { return *t.Topic == "t" })
	case *kmsg.ListGroupsResponse:
		return !slices.ContainsFunc(r.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return g.Group == "g" })
	case *kmsg.ListTransactionsResponse:
		return len(r.TransactionStates) == 0
	case *kmsg.DescribeLogDirsResponse:
		return len(r.Dirs) == 0
	}
	return false
}

func text(v any) string {
	b, err := json.Marshal(v)
	return fmt.Sprint(string(b), err)
}

// TestWhatIsAskedBesides: of a session at each request, of what does not exist, and of what an answer tells beside the matter.
func TestWhatIsAskedBesides(t *testing.T) {
	var denied atomic.Pointer[machine.Access]
	b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) {
		broker.Authorize(c, func(_ *machine.Client, a machine.Access) bool {
			lacks := denied.Load()
			return lacks == nil || *lacks != a
		})
	}))
	c := dial(t, b)
	lack := func(a machine.Access) { denied.Store(&a) }
	createTopic(c, "t", 1)
	produce(c, "t", 0, batchOf(1, "a"))

	req := fetchRequest("t", 0, 0)
	req.SessionEpoch = 0
	first := ask[*kmsg.FetchResponse](c, req)
	if first.SessionID == 0 || fetched(first).ErrorCode != 0 {
		t.Fatalf("no session was begun: %s", text(first))
	}
	next := kmsg.NewPtrFetchRequest()
	next.Version, next.MaxBytes, next.SessionID, next.SessionEpoch = 12, 1<<20, first.SessionID, 1
	lack(onTopic(opRead))
	if p := fetched(ask[*kmsg.FetchResponse](c, next)); p.ErrorCode != topicDenied || len(p.RecordBatches) > 0 {
		t.Errorf("a session goes on without permission: %s", text(p))
	}
	denied.Store(nil)
	next.SessionEpoch = 2
	if p := fetched(ask[*kmsg.FetchResponse](c, next)); p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
		t.Errorf("a session does not go on with permission: %s", text(p))
	}

	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.Version, remove.TopicNames = 3, []string{"absent"}
	for _, want := range []int16{3, topicDenied} {
		if code := ask[*kmsg.DeleteTopicsResponse](c, remove).Topics[0].ErrorCode; code != want {
			t.Errorf("the deletion of a topic that does not exist: code %d, want %d", code, want)
		}
		lack(machine.Access{Operation: opDescribe, Resource: kmsg.ACLResourceTypeTopic, Name: "absent"})
	}

	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "new", 2, 1
	create.Topics = append(create.Topics, topic)
	lack(machine.Access{Operation: opDescribeConfigs, Resource: kmsg.ACLResourceTypeTopic, Name: "new"})
	if r := ask[*kmsg.CreateTopicsResponse](c, create).Topics[0]; r.ErrorCode != 0 || r.ConfigErrorCode != topicDenied || len(r.Configs) > 0 || r.NumPartitions != -1 {
		t.Errorf("a new topic whose configuration may not be seen: %s", text(r))
	}
}
