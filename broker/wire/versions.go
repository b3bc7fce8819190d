package wire

import "github.com/twmb/franz-go/pkg/kmsg"

// API is what this broker serves of one API key.
type API struct {
	Key      int16
	Name     string
	Min, Max int16 // versions served, as Apache Kafka 4.3 serves them (kafka-eos.md E.1)
	// AdvertisedMin is the lowest version named in ApiVersions. It differs from Min only for Produce, where librdkafka
	// switches features off unless it sees 0 (KAFKA-18659).
	AdvertisedMin int16
	// FirstFlexible is the first version with compact lengths and tagged fields (KIP-482).
	FirstFlexible int16
	// Hidden APIs are not advertised.
	Hidden bool
}

// apis is sorted by key.
var apis = []API{
	{Key: 0, Name: "Produce", Min: 3, Max: 13, FirstFlexible: 9},
	{Key: 1, Name: "Fetch", Min: 4, Max: 18, AdvertisedMin: 4, FirstFlexible: 12},
	{Key: 2, Name: "ListOffsets", Min: 1, Max: 11, AdvertisedMin: 1, FirstFlexible: 6},
	{Key: 3, Name: "Metadata", Max: 13, FirstFlexible: 9},
	{Key: 8, Name: "OffsetCommit", Min: 2, Max: 10, AdvertisedMin: 2, FirstFlexible: 8},
	{Key: 9, Name: "OffsetFetch", Min: 1, Max: 10, AdvertisedMin: 1, FirstFlexible: 6},
	{Key: 10, Name: "FindCoordinator", Max: 6, FirstFlexible: 3},
	{Key: 11, Name: "JoinGroup", Max: 9, FirstFlexible: 6},
	{Key: 12, Name: "Heartbeat", Max: 4, FirstFlexible: 4},
	{Key: 13, Name: "LeaveGroup", Max: 5, FirstFlexible: 4},
	{Key: 14, Name: "SyncGroup", Max: 5, FirstFlexible: 4},
	{Key: 15, Name: "DescribeGroups", Max: 6, FirstFlexible: 5},
	{Key: 16, Name: "ListGroups", Max: 5, FirstFlexible: 3},
	{Key: 18, Name: "ApiVersions", Max: 4, FirstFlexible: 3},
	{Key: 19, Name: "CreateTopics", Min: 2, Max: 7, AdvertisedMin: 2, FirstFlexible: 5},
	{Key: 20, Name: "DeleteTopics", Min: 1, Max: 6, AdvertisedMin: 1, FirstFlexible: 4},
	{Key: 21, Name: "DeleteRecords", Max: 2, FirstFlexible: 2},
	{Key: 22, Name: "InitProducerId", Max: 5, FirstFlexible: 2},
	{Key: 23, Name: "OffsetForLeaderEpoch", Min: 2, Max: 4, AdvertisedMin: 2, FirstFlexible: 4},
	{Key: 24, Name: "AddPartitionsToTxn", Max: 5, FirstFlexible: 3},
	{Key: 25, Name: "AddOffsetsToTxn", Max: 4, FirstFlexible: 3},
	{Key: 26, Name: "EndTxn", Max: 5, FirstFlexible: 3},
	{Key: 27, Name: "WriteTxnMarkers", Min: 1, Max: 2, AdvertisedMin: 1, FirstFlexible: 1},
	{Key: 28, Name: "TxnOffsetCommit", Max: 5, FirstFlexible: 3},
	{Key: 32, Name: "DescribeConfigs", Min: 1, Max: 4, AdvertisedMin: 1, FirstFlexible: 4},
	{Key: 33, Name: "AlterConfigs", Max: 2, FirstFlexible: 2},
	{Key: 35, Name: "DescribeLogDirs", Min: 1, Max: 5, AdvertisedMin: 1, FirstFlexible: 2},
	{Key: 37, Name: "CreatePartitions", Max: 3, FirstFlexible: 2},
	{Key: 42, Name: "DeleteGroups", Max: 2, FirstFlexible: 2},
	{Key: 43, Name: "ElectLeaders", Max: 2, FirstFlexible: 2},
	{Key: 44, Name: "IncrementalAlterConfigs", Max: 1, FirstFlexible: 1},
	{Key: 45, Name: "AlterPartitionReassignments", Max: 1, FirstFlexible: 0},
	{Key: 46, Name: "ListPartitionReassignments", FirstFlexible: 0},
	{Key: 47, Name: "OffsetDelete", FirstFlexible: 1},
	{Key: 48, Name: "DescribeClientQuotas", Max: 1, FirstFlexible: 1},
	{Key: 57, Name: "UpdateFeatures", Max: 2, FirstFlexible: 0},
	{Key: 60, Name: "DescribeCluster", Max: 2, FirstFlexible: 0},
	{Key: 61, Name: "DescribeProducers", FirstFlexible: 0},
	{Key: 65, Name: "DescribeTransactions", FirstFlexible: 0},
	{Key: 66, Name: "ListTransactions", Max: 2, FirstFlexible: 0},
	{Key: 68, Name: "ConsumerGroupHeartbeat", Max: 1, FirstFlexible: 0},
	{Key: 69, Name: "ConsumerGroupDescribe", Max: 1, FirstFlexible: 0},
	{Key: 74, Name: "ListConfigResources", Max: 1, FirstFlexible: 0},
	{Key: 75, Name: "DescribeTopicPartitions", FirstFlexible: 0},
}

// byKey finds an entry of apis; 0 means none, else the index plus one.
var byKey = func() (index [128]uint8) {
	for i, a := range apis {
		index[a.Key] = uint8(i + 1)
	}
	return index
}()

// Lookup finds the API with this key.
func Lookup(key int16) (API, bool) {
	if key < 0 || int(key) >= len(byKey) || byKey[key] == 0 {
		return API{}, false
	}
	return apis[byKey[key]-1], true
}

// APIs returns what is served, sorted by key.
func APIs() []API { return append([]API(nil), apis...) }

// Serves reports whether version can be parsed and answered. Produce versions 0 to 2 are advertised but not served.
func (a API) Serves(version int16) bool { return version >= a.Min && version <= a.Max }

// Flexible reports whether version has compact lengths and tagged fields.
func (a API) Flexible(version int16) bool { return version >= a.FirstFlexible }

// Feature is one of the cluster's feature levels (KIP-584).
type Feature struct {
	Name      string
	Min, Max  int16
	Finalized int16 // 0 is not finalized: the feature is off
}

// Features are the feature levels, sorted by name, and the epoch of the finalized ones.
type Features struct {
	Epoch int64
	All   []Feature
}

const (
	codeInvalidRequest     int16 = 42
	codeUnsupportedVersion int16 = 35
)

// ApiVersions answers an ApiVersions request of a version that is served.
func ApiVersions(req *kmsg.ApiVersionsRequest, features Features) *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = req.Version
	if req.Version >= 3 && !(validSoftware(req.ClientSoftwareName) && validSoftware(req.ClientSoftwareVersion)) {
		resp.ErrorCode = codeInvalidRequest
		return resp
	}
	for _, a := range apis {
		if !a.Hidden {
			resp.ApiKeys = append(resp.ApiKeys, apiKey(a))
		}
	}
	resp.FinalizedFeaturesEpoch = features.Epoch
	for _, f := range features.All {
		// Below version 4 a minimum of 0 is not allowed on the wire (KAFKA-17011).
		if req.Version >= 4 || f.Min > 0 {
			s := kmsg.NewApiVersionsResponseSupportedFeature()
			s.Name, s.MinVersion, s.MaxVersion = f.Name, f.Min, f.Max
			resp.SupportedFeatures = append(resp.SupportedFeatures, s)
		}
		if f.Finalized > 0 {
			l := kmsg.NewApiVersionsResponseFinalizedFeature()
			l.Name, l.MinVersionLevel, l.MaxVersionLevel = f.Name, f.Finalized, f.Finalized
			resp.FinalizedFeatures = append(resp.FinalizedFeatures, l)
		}
	}
	return resp
}

// ApiVersionsFallback answers an ApiVersions request of a version that is not served: version 0, UNSUPPORTED_VERSION,
// and the range of ApiVersions itself, so that the client can ask again (KIP-511).
func ApiVersionsFallback() *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = codeUnsupportedVersion
	own, _ := Lookup(KeyApiVersions)
	resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{apiKey(own)}
	return resp
}

func apiKey(a API) kmsg.ApiVersionsResponseApiKey {
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = a.Key, a.AdvertisedMin, a.Max
	return k
}

// validSoftware checks a client's software name or version: letters, digits, dots and dashes, a letter or digit at
// both ends (KIP-511).
func validSoftware(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		alnum := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		edge := i == 0 || i == len(s)-1
		if !alnum && (edge || c != '.' && c != '-') {
			return false
		}
	}
	return len(s) > 0
}
