package machine

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

// AlterConfigs (key 33), v0 to 2: a topic or group gets the named settings and loses all others. A null value counts as not named.

func (m *Machine) alterConfigs(req *kmsg.AlterConfigsRequest) {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	repeated := repeatedResources(len(req.Resources), func(i int) resource {
		return resource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}
	})
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		why := m.alterResource(resource{r.ResourceType, r.ResourceName}, repeated, req.ValidateOnly, func(keys *configKeys, _ []Setting) (map[string]string, *refusal) {
			return replacement(keys, r.Configs)
		})
		if why != nil {
			out.ErrorCode, out.ErrorMessage = why.code.Code, kmsg.StringPtr(why.message)
		}
		resp.Resources = append(resp.Resources, out)
	}
	m.reply(resp)
}

func replacement(keys *configKeys, configs []kmsg.AlterConfigsRequestResourceConfig) (map[string]string, *refusal) {
	values := make(map[string]string, len(configs))
	for _, c := range configs {
		if keys.find(c.Name) == nil {
			return nil, refuse(kerr.InvalidConfig, "unknown %s configuration %q", keys.of, c.Name)
		}
		if _, twice := values[c.Name]; twice {
			return nil, refuse(kerr.InvalidRequest, "configuration %s is named twice", c.Name)
		}
		if c.Value != nil {
			values[c.Name] = *c.Value
		}
	}
	return values, nil
}

// resource is what has a configuration.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

// repeatedResources finds those that a request names more than once: what was meant cannot be known.
func repeatedResources(n int, at func(i int) resource) map[resource]bool {
	seen := make(map[resource]bool, n)
	for i := range n {
		r := at(i)
		_, before := seen[r]
		seen[r] = before
	}
	maps.DeleteFunc(seen, func(_ resource, twice bool) bool { return !twice })
	return seen
}

// configChange makes values of those that a resource was given so far.
type configChange func(keys *configKeys, now []Setting) (map[string]string, *refusal)

// alterResource gives a topic or group the values that change makes of its present ones.
func (m *Machine) alterResource(r resource, repeated map[resource]bool, validateOnly bool, change configChange) *refusal {
	switch {
	case repeated[r]:
		return refuse(kerr.InvalidRequest, "the request names %q more than once", r.name)
	case r.kind == kmsg.ConfigResourceTypeBroker && !m.mayCluster(kmsg.ACLOperationAlterConfigs):
		return refuse(kerr.ClusterAuthorizationFailed, "the client may not change the broker's configuration")
	case r.kind == kmsg.ConfigResourceTypeBroker:
		return refuse(kerr.InvalidConfig, "the broker's settings are flags of its start and cannot be changed while it runs")
	case r.kind == kmsg.ConfigResourceTypeGroupConfig:
		return m.alterGroup(r.name, validateOnly, change)
	case r.kind != kmsg.ConfigResourceTypeTopic:
		return refuse(kerr.InvalidRequest, "resources of type %d have no configuration here that can be changed: 2 is topics, 32 groups", r.kind)
	case !m.mayTopic(kmsg.ACLOperationAlterConfigs, r.name):
		return refuse(kerr.TopicAuthorizationFailed, "the client may not change the configuration of topic %q", r.name)
	}
	return m.alterTopic(r, validateOnly, change)
}

func (m *Machine) alterTopic(r resource, validateOnly bool, change configChange) *refusal {
	t := m.topics[r.name]
	if t == nil {
		// What no topic could have is told first, as Apache Kafka does.
		values, why := change(&topicKeys, nil)
		if why != nil {
			return why
		}
		if _, err := settingsOf(values); err != nil {
			return refuse(kerr.InvalidConfig, "%v", err)
		}
		return refuse(kerr.UnknownTopicOrPartition, "there is no topic %q", r.name)
	}
	values, why := change(&topicKeys, t.Settings.Explicit)
	if why != nil {
		return why
	}
	settings, err := settingsOf(values)
	if err != nil {
		return refuse(kerr.InvalidConfig, "%v", err)
	}
	if validateOnly || slices.Equal(settings.Explicit, t.Settings.Explicit) {
		return nil
	}
	a := settingsChanged{name: t.Name, settingsVersion: m.settingsVersion + 1, settings: settings}
	m.record(kindTopicSettings, a.append(m.beginRecord()))
	m.step.out.Topics = append(m.step.out.Topics, TopicChange{Topic: *t.Topic})
	return nil
}

// settingsChanged gives a topic other settings.
type settingsChanged struct {
	name            string
	settingsVersion uint32
	settings        Settings
}

func (c *settingsChanged) append(dst []byte) []byte {
	dst = codec.AppendString(dst, c.name)
	dst = binary.AppendUvarint(dst, uint64(c.settingsVersion))
	return c.settings.append(dst)
}

func readSettingsChanged(r *reader) settingsChanged {
	return settingsChanged{name: r.String(), settingsVersion: r.Uint32(), settings: readSettings(r)}
}

func (m *Machine) applySettingsChanged(c settingsChanged) error {
	t := m.topics[c.name]
	if t == nil {
		return codec.Corrupt("topic %q gets settings, but there is none", c.name)
	}
	if c.settingsVersion <= m.settingsVersion {
		return codec.Corrupt("topic %q gets settings of version %d, %d is taken", c.name, c.settingsVersion, m.settingsVersion)
	}
	next := *t.Topic
	next.Settings, next.SettingsVersion = c.settings, c.settingsVersion
	t.Topic = &next
	m.settingsVersion = c.settingsVersion
	return nil
}
