package broker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/brokertest"
)

// What a cluster of one answers to questions about replicas, leaders and quotas.
func TestSingleNodeAnswers(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	createTopic(c, "t", 2)

	elect := kmsg.NewPtrElectLeadersRequest()
	elect.Version = 2
	elect.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{0, 2}}}
	e := ask[*kmsg.ElectLeadersResponse](c, elect).Topics[0].Partitions
	if e[0].ErrorCode != 84 || e[1].ErrorCode != 3 {
		t.Errorf("ElectLeaders: %+v", e)
	}
	elect.Topics = nil
	if e := ask[*kmsg.ElectLeadersResponse](c, elect); len(e.Topics) != 0 || e.ErrorCode != 0 {
		t.Errorf("ElectLeaders of all: %+v", e)
	}

	move := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	move.Version = 1
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = "t"
	for i, replicas := range [][]int32{{1}, {1, 2}, nil} {
		rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		rp.Partition, rp.Replicas = int32(i%2), replicas
		rt.Partitions = append(rt.Partitions, rp)
	}
	move.Topics = append(move.Topics, rt)
	m := ask[*kmsg.AlterPartitionAssignmentsResponse](c, move)
	if p := m.Topics[0].Partitions; p[0].ErrorCode != 0 || p[1].ErrorCode != 39 || p[2].ErrorCode != 85 {
		t.Errorf("AlterPartitionReassignments: %+v", p)
	}
	if l := ask[*kmsg.ListPartitionReassignmentsResponse](c, kmsg.NewPtrListPartitionReassignmentsRequest()); len(l.Topics) != 0 || l.ErrorCode != 0 {
		t.Errorf("ListPartitionReassignments: %+v", l)
	}
	quotas := kmsg.NewPtrDescribeClientQuotasRequest()
	quotas.Version = 1
	if q := ask[*kmsg.DescribeClientQuotasResponse](c, quotas); q.Entries == nil || len(q.Entries) != 0 || q.ErrorCode != 0 {
		t.Errorf("DescribeClientQuotas: %+v", q)
	}
}

func TestListConfigResources(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	createTopic(c, "t", 1)
	f := func(version int16, want string, types ...int8) {
		t.Helper()
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.Version, req.ResourceTypes = version, types
		resp := ask[*kmsg.ListConfigResourcesResponse](c, req)
		got := fmt.Sprint(resp.ErrorCode)
		for _, r := range resp.ConfigResources {
			got += fmt.Sprintf(" %d:%s", r.Type, r.Name)
		}
		if got != want {
			t.Errorf("version %d, types %v: %s, want %s", version, types, got, want)
		}
	}
	f(0, "0")
	f(1, "0 2:t 4:1")
	f(1, "0 2:t", 2, 16)
	f(1, "0", 32)
	f(1, "35", 2, 99)
}

// A listener of a broker describes brokers, and says so when it is asked for something else.
func TestDescribeClusterEndpoints(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	for endpoint, want := range map[int8]int16{0: 115, 1: 0, 2: 114, 3: 115} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version, req.EndpointType = 2, endpoint
		resp := ask[*kmsg.DescribeClusterResponse](c, req)
		if resp.ErrorCode != want || resp.EndpointType != 1 || len(resp.Brokers) > 0 != (want == 0) {
			t.Errorf("endpoint type %d: %+v", endpoint, resp)
		}
	}
}

// DescribeLogDirs tells what lies in files and in the journal alike, for a broker in memory and for one with a folder, also
// after a restart, when sizes of complete files are not known.
func TestDescribeLogDirs(t *testing.T) {
	dir := t.TempDir()
	b := brokertest.Start(t, brokertest.Dir(dir))
	c := dial(t, b)
	createTopic(c, "t", 2)
	createTopic(c, "u", 1)
	batch := batchOf(1000, "a", "b")
	produce(c, "t", 1, batch)
	produce(c, "t", 1, batch)
	f := func(version int16, want string, topics ...kmsg.DescribeLogDirsRequestTopic) {
		t.Helper()
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Version, req.Topics = version, topics
		resp := ask[*kmsg.DescribeLogDirsResponse](c, req)
		got := ""
		for _, d := range resp.Dirs {
			got += fmt.Sprint(d.Dir == dir, d.ErrorCode)
			for _, t := range d.Topics {
				got += " " + t.Topic
				for _, p := range t.Partitions {
					got += fmt.Sprintf(" %d:%d", p.Partition, p.Size)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("version %d of %v (-want +got):\n%s", version, topics, diff)
		}
	}
	size := 2 * len(batch)
	for v := int16(1); v <= 5; v++ {
		f(v, fmt.Sprintf("true 0 t 0:0 1:%d u 0:0", size))
	}
	f(5, fmt.Sprintf("true 0 t 1:%d", size), kmsg.DescribeLogDirsRequestTopic{Topic: "t", Partitions: []int32{1, 1, 7}},
		kmsg.DescribeLogDirsRequestTopic{Topic: "none", Partitions: []int32{0}}, kmsg.DescribeLogDirsRequestTopic{Topic: "u", Partitions: []int32{1}})
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	c = dial(t, brokertest.Start(t, brokertest.Dir(dir)))
	f(4, fmt.Sprintf("true 0 t 0:0 1:%d u 0:0", size))
}

// A folder that is given relative to where the broker was started means nothing to a client elsewhere.
func TestFolderIsShownWhole(t *testing.T) {
	t.Chdir(t.TempDir())
	where, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, brokertest.Start(t, brokertest.Dir("data")))
	dirs := kmsg.NewPtrDescribeLogDirsRequest()
	dirs.Version = 4
	settings := kmsg.NewPtrDescribeConfigsRequest()
	settings.Version = 4
	settings.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1", ConfigNames: []string{"log.dirs"}}}
	want := filepath.Join(where, "data")
	if got := ask[*kmsg.DescribeLogDirsResponse](c, dirs).Dirs[0].Dir; got != want {
		t.Errorf("DescribeLogDirs names %q, want %q", got, want)
	}
	if got := ask[*kmsg.DescribeConfigsResponse](c, settings).Resources[0].Configs[0].Value; got == nil || *got != want {
		t.Errorf("log.dirs is %v, want %q", got, want)
	}
}
