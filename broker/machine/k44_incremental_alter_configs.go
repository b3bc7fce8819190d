package machine

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// IncrementalAlterConfigs (key 44), v0 and 1 (KIP-339): single settings are set or taken back; lists get and lose elements.

func (m *Machine) incrementalAlterConfigs(req *kmsg.IncrementalAlterConfigsRequest) {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	repeated := repeatedResources(len(req.Resources), func(i int) resource {
		return resource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}
	})
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		why := m.alterResource(resource{r.ResourceType, r.ResourceName}, repeated, req.ValidateOnly, func(keys *configKeys, now []Setting) (map[string]string, *refusal) {
			return changed(keys, now, r.Configs)
		})
		if why != nil {
			out.ErrorCode, out.ErrorMessage = why.code.Code, kmsg.StringPtr(why.message)
		}
		resp.Resources = append(resp.Resources, out)
	}
	m.reply(resp)
}

// changed applies a request's operations to the values that were given so far.
func changed(keys *configKeys, explicit []Setting, configs []kmsg.IncrementalAlterConfigsRequestResourceConfig) (map[string]string, *refusal) {
	values := make(map[string]string, len(explicit)+len(configs))
	for _, e := range explicit {
		values[e.Name] = e.Value
	}
	seen := make(map[string]bool, len(configs))
	for _, c := range configs {
		if seen[c.Name] {
			return nil, refuse(kerr.InvalidRequest, "configuration %s is named twice", c.Name)
		}
		seen[c.Name] = true
	}
	for _, c := range configs {
		if why := applyConfigOp(keys, values, c); why != nil {
			return nil, why
		}
	}
	return values, nil
}

func applyConfigOp(keys *configKeys, values map[string]string, c kmsg.IncrementalAlterConfigsRequestResourceConfig) *refusal {
	k := keys.find(c.Name)
	switch {
	case c.Op == kmsg.IncrementalAlterConfigOpDelete:
		delete(values, c.Name) // an unknown one is not set in any case, as Apache Kafka has it
		return nil
	case c.Value == nil:
		return refuse(kerr.InvalidRequest, "configuration %s has no value; operation %d needs one", c.Name, c.Op)
	case k == nil:
		return refuse(kerr.InvalidConfig, "unknown %s configuration %q", keys.of, c.Name)
	case c.Op == kmsg.IncrementalAlterConfigOpSet:
		values[c.Name] = *c.Value
		return nil
	case c.Op != kmsg.IncrementalAlterConfigOpAppend && c.Op != kmsg.IncrementalAlterConfigOpSubtract:
		return refuse(kerr.InvalidRequest, "operation %d on configuration %s is unknown: 0 sets, 1 deletes, 2 appends, 3 subtracts", c.Op, c.Name)
	case k.kind != kmsg.ConfigTypeList:
		return refuse(kerr.InvalidConfig, "configuration %s is no list: elements cannot be appended or subtracted", c.Name)
	}
	now, named := values[c.Name]
	if !named {
		now = k.standard
	}
	list := elements(now)
	if c.Op == kmsg.IncrementalAlterConfigOpAppend && *c.Value == "" && len(list) > 0 {
		list = append(list, "") // an element as any other, as Apache Kafka has it
	}
	for _, e := range elements(*c.Value) {
		i := slices.Index(list, e)
		switch {
		case c.Op == kmsg.IncrementalAlterConfigOpAppend && i < 0:
			list = append(list, e)
		case c.Op == kmsg.IncrementalAlterConfigOpSubtract && i >= 0:
			list = slices.Delete(list, i, i+1)
		}
	}
	values[c.Name] = strings.Join(list, ",")
	return nil
}

// elements splits a list's value.
func elements(value string) []string {
	var all []string
	for _, e := range strings.Split(value, ",") {
		if e = strings.TrimSpace(e); e != "" {
			all = append(all, e)
		}
	}
	return all
}
