package machine

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeConfigs (key 32), v1 to 4: topics, this broker and groups. v3 asks for types and documentation.

func (m *Machine) describeConfigs(req *kmsg.DescribeConfigsRequest) {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	type key struct {
		kind kmsg.ConfigResourceType
		name string
	}
	// Each resource is described once: its description is much larger than its name.
	seen := make(map[key]bool, len(req.Resources))
	for i := range req.Resources {
		r := &req.Resources[i]
		k := key{r.ResourceType, r.ResourceName}
		if seen[k] {
			continue
		}
		seen[k] = true
		resp.Resources = append(resp.Resources, m.describeResource(req, r))
	}
	m.reply(resp)
}

func (m *Machine) describeResource(req *kmsg.DescribeConfigsRequest, r *kmsg.DescribeConfigsRequestResource) kmsg.DescribeConfigsResponseResource {
	d := kmsg.NewDescribeConfigsResponseResource()
	d.ResourceType, d.ResourceName = r.ResourceType, r.ResourceName
	configs, why := m.configsOf(r)
	if why != nil {
		d.ErrorCode, d.ErrorMessage = why.code.Code, kmsg.StringPtr(why.message)
		return d
	}
	for _, c := range configs {
		if len(r.ConfigNames) > 0 && !slices.Contains(r.ConfigNames, c.Name) {
			continue
		}
		if !req.IncludeSynonyms {
			c.ConfigSynonyms = nil
		}
		if doc := m.configDoc(r.ResourceType, c.Name); req.Version >= 3 && req.IncludeDocumentation && doc != "" {
			c.Documentation = kmsg.StringPtr(doc)
		}
		d.Configs = append(d.Configs, c)
	}
	return d
}

func (m *Machine) configsOf(r *kmsg.DescribeConfigsRequestResource) ([]kmsg.DescribeConfigsResponseResourceConfig, *refusal) {
	switch r.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if !m.mayTopic(kmsg.ACLOperationDescribeConfigs, r.ResourceName) {
			return nil, refuse(kerr.TopicAuthorizationFailed, "the client may not see the topic's configuration")
		}
		t := m.topics[r.ResourceName]
		if t == nil {
			return nil, refuse(kerr.UnknownTopicOrPartition, "there is no topic %q", r.ResourceName)
		}
		return m.topicConfigEntries(&t.Settings), nil
	case kmsg.ConfigResourceTypeBroker:
		if !m.mayCluster(kmsg.ACLOperationDescribeConfigs) {
			return nil, refuse(kerr.ClusterAuthorizationFailed, "the client may not see the broker's configuration")
		}
		if r.ResourceName != "" && r.ResourceName != formatInt(m.cfg.NodeID) {
			return nil, refuse(kerr.InvalidRequest, "there is no broker %q, this one is %d", r.ResourceName, m.cfg.NodeID)
		}
		if r.ResourceName == "" {
			return nil, nil // the cluster's defaults, which override none
		}
		return m.brokerConfigEntries(), nil
	case kmsg.ConfigResourceTypeGroupConfig:
		if !m.mayGroup(kmsg.ACLOperationDescribeConfigs, r.ResourceName) {
			return nil, refuse(kerr.GroupAuthorizationFailed, "the client may not see the group's configuration")
		}
		if r.ResourceName == "" {
			return nil, refuse(kerr.InvalidRequest, "the group's name is empty")
		}
		return m.groupConfigEntries(r.ResourceName), nil
	}
	return nil, refuse(kerr.InvalidRequest, "resources of type %d have no configuration here: 2 is topics, 4 this broker, 32 groups", r.ResourceType)
}

func (m *Machine) topicConfigEntries(s *Settings) []kmsg.DescribeConfigsResponseResourceConfig {
	all := make([]kmsg.DescribeConfigsResponseResourceConfig, len(topicConfigs))
	for i := range topicConfigs {
		k := &topicConfigs[i]
		value, source := m.effective(s, k)
		all[i] = configEntry(k.name, value, source, k.kind)
		if broker, from := m.unnamed(k); from != kmsg.ConfigSourceDefaultConfig && source != from {
			all[i].ConfigSynonyms = append(all[i].ConfigSynonyms, synonym(messageMaxBytes, broker, from))
		}
		if source != kmsg.ConfigSourceDefaultConfig {
			all[i].ConfigSynonyms = append(all[i].ConfigSynonyms, synonym(k.name, k.standard, kmsg.ConfigSourceDefaultConfig))
		}
	}
	return all
}

const messageMaxBytes = "message.max.bytes" // what max.message.bytes is called for the broker

func (m *Machine) configDoc(kind kmsg.ConfigResourceType, name string) string {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		return topicConfigDocs[name]
	case kmsg.ConfigResourceTypeGroupConfig:
		return groupConfigDocs[name]
	}
	for i := range m.cfg.Described {
		if m.cfg.Described[i].Name == name {
			return m.cfg.Described[i].Doc
		}
	}
	return ""
}

// brokerConfigEntries are the broker's settings; none can be changed while it runs.
func (m *Machine) brokerConfigEntries() []kmsg.DescribeConfigsResponseResourceConfig {
	all := make([]kmsg.DescribeConfigsResponseResourceConfig, len(m.cfg.Described))
	for i, c := range m.cfg.Described {
		source := kmsg.ConfigSourceStaticBrokerConfig
		if c.Value == c.Default {
			source = kmsg.ConfigSourceDefaultConfig
		}
		all[i] = configEntry(c.Name, c.Value, source, c.Kind)
		all[i].ReadOnly = true
		if c.Default != "" && c.Value != c.Default {
			all[i].ConfigSynonyms = append(all[i].ConfigSynonyms, synonym(c.Name, c.Default, kmsg.ConfigSourceDefaultConfig))
		}
	}
	return all
}

func configEntry(name, value string, source kmsg.ConfigSource, kind kmsg.ConfigType) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.Source, c.ConfigType = name, kmsg.StringPtr(value), source, kind
	c.IsDefault = source == kmsg.ConfigSourceDefaultConfig
	c.ConfigSynonyms = []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{synonym(name, value, source)}
	return c
}

func synonym(name, value string, source kmsg.ConfigSource) kmsg.DescribeConfigsResponseResourceConfigConfigSynonym {
	s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
	s.Name, s.Value, s.Source = name, kmsg.StringPtr(value), source
	return s
}
