package wire

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTableAgreesWithTheCodec(t *testing.T) {
	last := int16(-1)
	for _, a := range APIs() {
		if a.Key <= last {
			t.Errorf("%s (%d) is out of order", a.Name, a.Key)
		}
		last = a.Key
		req := kmsg.RequestForKey(a.Key)
		if req == nil {
			t.Fatalf("kmsg does not know key %d", a.Key)
		}
		if a.Max > req.MaxVersion() {
			t.Errorf("%s: served up to %d, kmsg knows %d", a.Name, a.Max, req.MaxVersion())
		}
		if a.Key != KeyProduce && a.AdvertisedMin != a.Min {
			t.Errorf("%s: advertises %d and serves %d", a.Name, a.AdvertisedMin, a.Min)
		}
		for v := a.Min; v <= a.Max; v++ {
			req.SetVersion(v)
			if req.IsFlexible() != a.Flexible(v) {
				t.Errorf("%s version %d: flexible is %t in kmsg", a.Name, v, req.IsFlexible())
			}
			resp := req.ResponseKind()
			if resp.IsFlexible() != a.Flexible(v) {
				t.Errorf("%s version %d: the response's flexible is %t in kmsg", a.Name, v, resp.IsFlexible())
			}
		}
		if got, ok := Lookup(a.Key); !ok || got != a {
			t.Errorf("Lookup(%d) = %v, %t", a.Key, got, ok)
		}
	}
	for _, key := range []int16{-1, 4, 7, 127, 128, 32767, -32768} {
		if a, ok := Lookup(key); ok {
			t.Errorf("Lookup(%d) = %v", key, a)
		}
	}
}

func TestProduceIsAdvertisedFromZeroAndServedFromThree(t *testing.T) {
	a, _ := Lookup(KeyProduce)
	if a.AdvertisedMin != 0 || a.Serves(2) || !a.Serves(3) || !a.Serves(13) || a.Serves(14) {
		t.Errorf("Produce is %+v", a)
	}
	resp := ApiVersions(&kmsg.ApiVersionsRequest{Version: 2}, Features{})
	if k := resp.ApiKeys[0]; k.ApiKey != 0 || k.MinVersion != 0 || k.MaxVersion != 13 {
		t.Errorf("advertised: %+v", k)
	}
	for _, k := range resp.ApiKeys {
		if k.ApiKey == 17 || k.ApiKey == 36 {
			t.Errorf("key %d is advertised without sign-in", k.ApiKey)
		}
	}
}

func TestFeaturesByVersion(t *testing.T) {
	features := Features{Epoch: 4, All: []Feature{
		{Name: "group.version", Max: 1}, {Name: "metadata.version", Min: 7, Max: 30, Finalized: 30}, {Name: "transaction.version", Max: 2, Finalized: 2},
	}}
	supported := func(version int16, want ...string) {
		t.Helper()
		req := &kmsg.ApiVersionsRequest{Version: version, ClientSoftwareName: "a.b-c", ClientSoftwareVersion: "1"}
		resp := ApiVersions(req, features)
		var got []string
		for _, f := range resp.SupportedFeatures {
			got = append(got, f.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("version %d supports %q, want %q", version, got, want)
		}
		if resp.FinalizedFeaturesEpoch != 4 {
			t.Errorf("epoch %d", resp.FinalizedFeaturesEpoch)
		}
		levels := map[string]int16{}
		for _, f := range resp.FinalizedFeatures {
			levels[f.Name] = f.MaxVersionLevel
		}
		if diff := cmp.Diff(map[string]int16{"metadata.version": 30, "transaction.version": 2}, levels); diff != "" {
			t.Errorf("finalized (-want +got):\n%s", diff)
		}
	}
	supported(3, "metadata.version")
	supported(4, "group.version", "metadata.version", "transaction.version")
}

func TestClientSoftwareNames(t *testing.T) {
	f := func(name string, want bool) {
		t.Helper()
		if got := validSoftware(name); got != want {
			t.Errorf("validSoftware(%q) = %t", name, got)
		}
	}
	f("apache-kafka-java", true)
	f("librdkafka", true)
	f("3.9.0", true)
	f("x", true)
	f("", false)
	f("-x", false)
	f("x.", false)
	f("a b", false)
	f("ä", false)
	resp := ApiVersions(&kmsg.ApiVersionsRequest{Version: 3, ClientSoftwareName: "a b", ClientSoftwareVersion: "1"}, Features{})
	if resp.ErrorCode != codeInvalidRequest || len(resp.ApiKeys) != 0 {
		t.Errorf("a bad name is answered with %+v", resp)
	}
}

func TestApiVersionsFallbackBytes(t *testing.T) {
	got := AppendResponse(nil, 7, ApiVersionsFallback())
	want := []byte{
		0, 0, 0, 16, // length
		0, 0, 0, 7, // correlation id; no tags, header version 0
		0, 35, // UNSUPPORTED_VERSION
		0, 0, 0, 1, // one key
		0, 18, 0, 0, 0, 4, // ApiVersions 0 to 4
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
