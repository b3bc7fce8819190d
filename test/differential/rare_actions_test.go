//go:build peers

package differential

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

var rareActions = []action{
	{5, (*world).apiVersions},
	{4, (*world).replaceConfigs},
	{5, (*world).describeLogDirs},
	{4, (*world).electLeaders},
	{4, (*world).reassign},
	{2, (*world).listReassignments},
	{3, (*world).describeQuotas},
	{4, (*world).updateFeatures},
	{4, (*world).describeCluster},
	{3, (*world).listConfigResources},
}

func (w *world) apiVersions() step {
	req := kmsg.NewPtrApiVersionsRequest()
	w.anyVersion(req)
	req.ClientSoftwareName, req.ClientSoftwareVersion = pick(w, "differential", "a.b-c", "differential", "-", "ü", ""), pick(w, "1", "1.0-SNAPSHOT", "1", "ä", "")
	return one(w.IntN(6), req, nil)
}

// replaceConfigs is an AlterConfigs: what it does not name is a default again.
func (w *world) replaceConfigs() step {
	req := kmsg.NewPtrAlterConfigsRequest()
	w.anyVersion(req)
	req.ValidateOnly = w.chance(40)
	r := kmsg.NewAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, w.names[w.IntN(len(w.names))]
	set := func(name, value string) {
		c := kmsg.NewAlterConfigsRequestResourceConfig()
		c.Name, c.Value = name, &value
		r.Configs = append(r.Configs, c)
	}
	set("max.message.bytes", pick(w, "2000", "1048588", "-1", "x"))
	if w.chance(50) {
		set(pick(w, "retention.ms", "no.such.setting", "message.timestamp.type", "max.message.bytes"), pick(w, "100000", "CreateTime", "LogAppendTime"))
	}
	if w.chance(10) {
		r.ResourceName = w.prefix + "none"
	}
	req.Resources = append(req.Resources, r)
	return one(0, req, nil)
}

func (w *world) describeLogDirs() step {
	req := kmsg.NewPtrDescribeLogDirsRequest()
	w.anyVersion(req)
	req.Topics = []kmsg.DescribeLogDirsRequestTopic{}
	for _, at := range w.places(3) {
		t := kmsg.NewDescribeLogDirsRequestTopic()
		t.Topic, t.Partitions = at.topic, []int32{at.partition}
		req.Topics = append(req.Topics, t)
	}
	return one(0, req, nil)
}

func (w *world) electLeaders() step {
	req := kmsg.NewPtrElectLeadersRequest()
	w.anyVersion(req)
	req.ElectionType, req.TimeoutMillis = int8(w.IntN(2)), 10000
	for _, at := range w.places(2) {
		t := kmsg.NewElectLeadersRequestTopic()
		t.Topic, t.Partitions = at.topic, []int32{at.partition}
		req.Topics = append(req.Topics, t)
	}
	return one(0, req, nil)
}

func (w *world) reassign() step {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	w.anyVersion(req)
	req.TimeoutMillis = 10000
	for _, at := range w.places(2) {
		t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		t.Topic = at.topic
		p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		p.Partition, p.Replicas = at.partition, pick(w, []int32{1}, nil, []int32{2}, []int32{}, []int32{1, 1})
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	return one(0, req, nil)
}

func (w *world) listReassignments() step {
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	req.TimeoutMillis = 10000
	if w.chance(50) {
		at := w.place()
		t := kmsg.NewListPartitionReassignmentsRequestTopic()
		t.Topic, t.Partitions = at.topic, []int32{at.partition}
		req.Topics = append(req.Topics, t)
	}
	return one(0, req, nil)
}

func (w *world) describeQuotas() step {
	req := kmsg.NewPtrDescribeClientQuotasRequest()
	w.anyVersion(req)
	req.Strict = w.chance(50)
	c := kmsg.NewDescribeClientQuotasRequestComponent()
	c.EntityType, c.MatchType = pick(w, "user", "client-id", "ip"), kmsg.QuotasMatchType(w.IntN(3))
	if c.MatchType == 0 {
		name := "nobody"
		c.Match = &name
	}
	req.Components = append(req.Components, c)
	return one(0, req, nil)
}

// updateFeatures changes nothing: all episodes share the levels.
func (w *world) updateFeatures() step {
	req := kmsg.NewPtrUpdateFeaturesRequest()
	w.anyVersion(req)
	req.TimeoutMillis, req.ValidateOnly = 10000, true
	f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	f.Feature, f.MaxVersionLevel, f.UpgradeType = "transaction.version", pick(w, int16(2), 99, -1), pick(w, int8(1), 2, 3)
	if req.Version == 0 { // which has no dry run
		f.Feature, f.MaxVersionLevel = pick(w, "no.such.feature", "transaction.version"), 99
	}
	req.FeatureUpdates = append(req.FeatureUpdates, f)
	return one(0, req, nil)
}

func (w *world) describeCluster() step {
	req := kmsg.NewPtrDescribeClusterRequest()
	w.anyVersion(req)
	req.EndpointType = pick(w, int8(1), 1, 2, 3)
	req.IncludeFencedBrokers = w.chance(50)
	return one(0, req, nil)
}

func (w *world) listConfigResources() step {
	req := kmsg.NewPtrListConfigResourcesRequest()
	w.anyVersion(req)
	req.ResourceTypes = pick(w, []int8{2}, []int8{32}, []int8{2, 32}, nil, []int8{99})
	return one(0, req, nil)
}
