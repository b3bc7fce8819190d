package machine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (f *Features) String() string {
	var all []string
	for _, x := range f.All {
		all = append(all, fmt.Sprintf("%s=%d", x.Name, x.Level))
	}
	return fmt.Sprintf("epoch %d: %s", f.Epoch, strings.Join(all, " "))
}

func TestUpdateFeatures(t *testing.T) {
	w := newWorld(t, Config{})
	var validateOnly bool
	// f asks for levels NAME=LEVEL at a version; kind is the upgrade type, which stands for AllowDowngrade in version 0.
	f := func(version int16, kind int8, want *kerr.Error, after string, levels ...string) {
		t.Helper()
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.ValidateOnly = validateOnly
		for _, l := range levels {
			u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
			name, level, _ := strings.Cut(l, "=")
			u.Feature, u.UpgradeType, u.AllowDowngrade = name, kind, kind > 1
			fmt.Sscan(level, &u.MaxVersionLevel)
			req.FeatureUpdates = append(req.FeatureUpdates, u)
		}
		resp := w.ask(req, version).(*kmsg.UpdateFeaturesResponse)
		code := int16(0)
		if want != nil {
			code = want.Code
		}
		if resp.ErrorCode != code || (resp.ErrorMessage == nil) != (code == 0) {
			t.Errorf("v%d %v: %s %v", version, levels, errorName(resp.ErrorCode), resp.ErrorMessage)
		}
		if want == nil && len(resp.Results) != map[bool]int{true: len(levels), false: 0}[version < 2] {
			t.Errorf("v%d %v: %d results", version, levels, len(resp.Results))
		}
		if got := w.m.Features().String(); got != after {
			t.Errorf("v%d %v: %s, want %s", version, levels, got, after)
		}
	}
	const start = "epoch 3: group.version=1 metadata.version=30 transaction.version=2"
	f(2, 1, nil, start, "transaction.version=2")
	f(2, 1, kerr.InvalidUpdateVersion, start, "transaction.version=1")
	f(2, 1, kerr.InvalidUpdateVersion, start, "transaction.version=3")
	f(2, 3, kerr.InvalidUpdateVersion, start, "transaction.version=-1")
	f(2, 3, kerr.InvalidUpdateVersion, start, "metadata.version=29")
	f(2, 1, nil, start, "metadata.version=30")
	f(2, 1, kerr.InvalidUpdateVersion, start, "kraft.version=1")
	f(2, 2, kerr.InvalidRequest, start, "transaction.version=1", "transaction.version=0")
	f(2, 2, kerr.InvalidUpdateVersion, start, "transaction.version=1", "group.version=9") // all or none
	validateOnly = true
	f(1, 2, nil, start, "transaction.version=1")
	validateOnly = false
	f(0, 1, kerr.InvalidUpdateVersion, start, "transaction.version=1")
	f(0, 2, nil, "epoch 4: group.version=1 metadata.version=30 transaction.version=1", "transaction.version=1")
	f(1, 2, nil, "epoch 6: group.version=0 metadata.version=30 transaction.version=0", "transaction.version=0", "group.version=0")
	w.restart()
	beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	beat.Group, beat.MemberID, beat.SubscribedTopicNames = "g", "m", []string{}
	if resp := w.ask(beat, 1).(*kmsg.ConsumerGroupHeartbeatResponse); resp.ErrorCode != kerr.UnsupportedVersion.Code {
		t.Errorf("a heartbeat without group.version is answered with %s", errorName(resp.ErrorCode))
	}
	f(2, 1, nil, "epoch 7: group.version=1 metadata.version=30 transaction.version=0", "group.version=1")
	w.m.may = func(_ *Client, a Access) bool { return a.Operation != kmsg.ACLOperationAlter }
	f(2, 1, kerr.ClusterAuthorizationFailed, "epoch 7: group.version=1 metadata.version=30 transaction.version=0", "transaction.version=2")
}
