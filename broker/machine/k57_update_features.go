package machine

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

// UpdateFeatures (key 57), v0 to 2 (KIP-584): all levels that a request names move, or none. v1 tells upgrades from downgrades
// and can only validate; v2 has no results for single features.

// upgrade is the only kind of change (v1) that may not lower a level.
const upgrade = 1

func (m *Machine) updateFeatures(req *kmsg.UpdateFeaturesRequest) {
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	defer m.reply(resp)
	if why := m.checkFeatures(req); why != nil {
		resp.ErrorCode, resp.ErrorMessage = why.code.Code, kmsg.StringPtr(why.message)
		return
	}
	moved := false
	for _, u := range req.FeatureUpdates {
		if req.Version < 2 {
			resp.Results = append(resp.Results, kmsg.UpdateFeaturesResponseResult{Feature: u.Feature})
		}
		if validateOnly := req.Version >= 1 && req.ValidateOnly; !validateOnly && m.level(u.Feature) != u.MaxVersionLevel {
			m.record(kindFeature, binary.AppendVarint(codec.AppendString(m.beginRecord(), u.Feature), int64(u.MaxVersionLevel)))
			moved = true
		}
	}
	if moved {
		m.step.out.Features = m.Features()
	}
}

func (m *Machine) checkFeatures(req *kmsg.UpdateFeaturesRequest) *refusal {
	if !m.mayCluster(kmsg.ACLOperationAlter) {
		return refuse(kerr.ClusterAuthorizationFailed, "the client may not change feature levels")
	}
	seen := make(map[string]bool, len(req.FeatureUpdates))
	for _, u := range req.FeatureUpdates {
		if seen[u.Feature] {
			return refuse(kerr.InvalidRequest, "feature %q is named twice", u.Feature)
		}
		seen[u.Feature] = true
		down := u.AllowDowngrade
		if req.Version >= 1 {
			down = u.UpgradeType > upgrade
		}
		if why := m.checkFeature(u.Feature, u.MaxVersionLevel, down); why != nil {
			return why
		}
	}
	return nil
}

func (m *Machine) checkFeature(name string, level int16, down bool) *refusal {
	for _, f := range m.Features().All {
		switch {
		case f.Name != name:
			continue
		case level < f.Min || level > f.Max:
			return refuse(kerr.InvalidUpdateVersion, "feature %s can have a level from %d to %d, not %d", name, f.Min, f.Max, level)
		case name == metadataVersion && level != f.Level:
			return refuse(kerr.InvalidUpdateVersion, "feature %s is %d as long as this program runs, and cannot become %d", name, f.Level, level)
		case level < f.Level && !down:
			return refuse(kerr.InvalidUpdateVersion, "feature %s would go down from %d to %d, which the request does not allow", name, f.Level, level)
		}
		return nil
	}
	return refuse(kerr.InvalidUpdateVersion, "there is no feature %q", name)
}
