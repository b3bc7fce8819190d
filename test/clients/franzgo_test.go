//go:build peers

package clients

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/test/peers"
)

const (
	noShareGroups   = "share groups are not served"
	noInternalTopic = "there is no internal topic such as __consumer_offsets"
)

// franzGoLeftOut are tests of the suite that cannot pass, and are not run.
var franzGoLeftOut = map[string]string{
	"TestConsumeRegex":           noInternalTopic,
	"Test848RegexBrokerResolves": noInternalTopic,
}

// franzGoSkips are the tests that skip themselves when they see what the broker serves, and why.
var franzGoSkips = map[string]string{
	"TestConsumeRegexShareSkipsInternal":       noShareGroups,
	"TestShareGroup":                           noShareGroups,
	"TestShareGroupAckOnClose":                 noShareGroups,
	"TestShareGroupETL":                        noShareGroups,
	"TestShareGroupOffsetsAdmin":               noShareGroups,
	"TestSCRAMAuth":                            "sign-in is not served",
	"TestSCRAMAuthBadCredentials":              "sign-in is not served",
	"TestOAuthAuth":                            "sign-in is not served",
	"TestIssueProduceBrokerTooOldFailsRecords": "Produce is advertised from version 0, as Apache Kafka 4 does for librdkafka's sake",
}

var goTestResult = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`)

// TestFranzGo runs franz-go's own suite of its client from its module: whole, with both versions of transactions, and its
// chains of groups while the broker is killed again and again.
func TestFranzGo(t *testing.T) {
	r := client(t, "franz-go", "franz-go")
	module := strings.Fields(run(t, "", "go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", "github.com/twmb/franz-go"))
	r.version = strings.TrimPrefix(module[0], "v")
	folder := buildFranzGo(t, module[1])
	suite := func(addr, which string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(folder, "kgo.test"), "-test.v", "-test.timeout=5m", which)
		cmd.Dir = filepath.Join(folder, "pkg", "kgo")
		cmd.Env = append(os.Environ(), "KGO_SEEDS="+addr, "KGO_TEST_RF=1", "KGO_TEST_RECORDS=20000", "KGO_TEST_UNSAFE=1",
			"KGO_LOG_LEVEL=none")
		return cmd
	}
	leftOut := "-test.skip=^(" + strings.Join(slices.Sorted(maps.Keys(franzGoLeftOut)), "|") + ")$"

	// All runs at once, since the suite spends most of its time waiting.
	whole := map[int]chan string{1: make(chan string, 1), 2: make(chan string, 1)}
	for version, out := range whole {
		b := broker(t, "--partitions", "3")
		setTransactionVersion(t, b.Addr, int16(version))
		go func() {
			text, err := peers.TryRun(suite(b.Addr, leftOut))
			if err != nil {
				text += err.Error()
			}
			out <- text
		}()
	}
	r.try(t, kills, "groups, transactions", func(t *testing.T) {
		to := peers.FreeAddress(t)
		through := relay(t, to)
		b := brokerAt(t, to, through, "--partitions", "3")
		franzGoPassed(t, runUnderKills(t, b, 2*time.Second, suite(through, "-test.run=^(TestTxnEtl|TestGroupETL)$")))
	})
	var out string
	r.try(t, transactions, "versions 1 and 2", func(t *testing.T) {
		for version := 2; version > 0; version-- {
			out = <-whole[version]
			t.Logf("transaction.version %d", version)
			franzGoPassed(t, out, "TestTxnEtl")
			franzGoSkipped(t, out)
		}
	})
	r.try(t, committed, "yes", func(t *testing.T) { franzGoPassed(t, out, "TestTxnEtl") })
	r.try(t, idempotence, "yes", func(t *testing.T) { franzGoPassed(t, out, "TestGroupETL", "TestClient_Produce") })
	r.try(t, groups, "range, cooperative, static", func(t *testing.T) {
		franzGoPassed(t, out, "TestGroupETL/range", "TestGroupETL/cooperative-sticky", "TestGroupETL/cooperative-sticky/static",
			"TestTxnEtl/cooperative-sticky/static")
	})
	r.try(t, consumer, "range, uniform, static", func(t *testing.T) {
		franzGoPassed(t, out, "TestGroupETL/range/848", "TestGroupETL/sticky/848", "TestGroupETL/sticky/848/static",
			"TestTxnEtl/sticky/848/static")
	})
	b := broker(t)
	r.try(t, produce, "none gzip snappy lz4 zstd", func(t *testing.T) { franzGoCodecs(t, b.Addr) })
	r.try(t, admin, "kadm: topics, offsets, groups", func(t *testing.T) { franzGoAdmin(t, b.Addr) })
}

// buildFranzGo compiles the suite of the module in a folder of its own, as the module cache is read-only.
func buildFranzGo(t *testing.T, module string) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "franz-go")
	if err := os.CopyFS(folder, os.DirFS(module)); err != nil {
		t.Fatal(err)
	}
	fetch := exec.Command("go", "mod", "download")
	fetch.Dir = folder
	if _, err := peers.TryRun(fetch); err != nil {
		t.Skipf("what franz-go's tests need is not to be had: %v", err)
	}
	build := exec.Command("go", "test", "-c", "-o", "kgo.test", "./pkg/kgo")
	build.Dir = folder
	build.Env = append(os.Environ(), "GOFLAGS=-mod=mod -trimpath")
	peers.Run(t, build)
	list := exec.Command(filepath.Join(folder, "kgo.test"), "-test.list", ".")
	tests := strings.Fields(peers.Run(t, list))
	for name := range franzGoLeftOut {
		if !slices.Contains(tests, name) {
			t.Errorf("%s is left out, but there is no such test", name)
		}
	}
	return folder
}

// franzGoPassed looks for the named tests in the output of a suite, in which none may have failed.
func franzGoPassed(t *testing.T, out string, names ...string) {
	t.Helper()
	var passed []string
	for _, m := range goTestResult.FindAllStringSubmatch(out, -1) {
		switch m[1] {
		case "FAIL":
			t.Errorf("%s failed", m[2])
		case "PASS":
			passed = append(passed, m[2])
		}
	}
	for _, name := range names {
		if !slices.Contains(passed, name) {
			t.Errorf("%s did not pass", name)
		}
	}
	if !strings.HasSuffix(strings.TrimSpace(out), "PASS") {
		t.Error("the suite did not end well")
	}
	if t.Failed() {
		t.Log(out)
	}
}

// franzGoSkipped compares what the suite has skipped with what is known.
func franzGoSkipped(t *testing.T, out string) {
	t.Helper()
	skipped := map[string]bool{}
	for _, m := range goTestResult.FindAllStringSubmatch(out, -1) {
		if m[1] != "SKIP" {
			continue
		}
		if skipped[m[2]] = true; franzGoSkips[m[2]] == "" {
			t.Errorf("%s was skipped", m[2])
		}
	}
	for name := range franzGoSkips {
		if !skipped[name] {
			t.Errorf("%s was not skipped: take it off the list", name)
		}
	}
}

// setTransactionVersion sets the version that clients find: 2, as a broker begins, or a lower one.
func setTransactionVersion(t *testing.T, addr string, version int16) {
	t.Helper()
	if version == 2 {
		return
	}
	cl := kgoClient(t, addr)
	req := kmsg.NewPtrUpdateFeaturesRequest()
	update := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	update.Feature, update.MaxVersionLevel, update.UpgradeType = "transaction.version", version, 2 // downgrade, which is safe
	req.FeatureUpdates = append(req.FeatureUpdates, update)
	resp, err := req.RequestWith(t.Context(), cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	versions, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range versions.FinalizedFeatures {
		if f.Name == "transaction.version" && f.MaxVersionLevel == version {
			return
		}
	}
	t.Fatalf("transaction.version is not %d: %+v", version, versions.FinalizedFeatures)
}

func kgoClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.AllowAutoTopicCreation()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// franzGoCodecs sends records with each compression and reads them.
func franzGoCodecs(t *testing.T, addr string) {
	for name, codec := range map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()} {
		topic := "kgo-" + name
		cl := kgoClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.ConsumeTopics(topic), kgo.ProducerBatchCompression(codec))
		var sent []*kgo.Record
		for i := range 1000 {
			sent = append(sent, kgo.StringRecord(fmt.Sprintf("value-%d", i)))
		}
		if err := cl.ProduceSync(t.Context(), sent...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(sent); {
			fetches := cl.PollFetches(t.Context())
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			for r := range fetches.RecordsAll() {
				if want := sent[n].Value; string(r.Value) != string(want) {
					t.Fatalf("%s: record %d is %q, want %q", name, n, r.Value, want)
				}
				n++
			}
		}
	}
}

// franzGoAdmin asks with kadm what kadm can ask of topics, offsets and groups.
func franzGoAdmin(t *testing.T, addr string) {
	ctx := t.Context()
	adm := kadm.NewClient(kgoClient(t, addr))
	if _, err := adm.CreateTopic(ctx, 2, 1, nil, "kadm"); err != nil {
		t.Fatal(err)
	}
	cl := kgoClient(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "kadm", Partition: 1, Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ends, err := adm.ListEndOffsets(ctx, "kadm")
	if end, ok := ends.Lookup("kadm", 1); err != nil || !ok || end.Offset != 1 {
		t.Fatalf("end offsets %v, %v", ends, err)
	}
	var offsets kadm.Offsets
	offsets.AddOffset("kadm", 1, 1, -1)
	if err := adm.CommitAllOffsets(ctx, "kadm-group", offsets); err != nil {
		t.Fatal(err)
	}
	if lags, err := adm.Lag(ctx, "kadm-group"); err != nil || lags["kadm-group"].Lag.Total() != 0 {
		t.Fatalf("lag %v, %v", lags, err)
	}
	if described, err := adm.ListTopics(ctx, "kadm"); err != nil || len(described["kadm"].Partitions) != 2 {
		t.Fatalf("topics %v, %v", described, err)
	}
	if _, err := adm.DeleteGroup(ctx, "kadm-group"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.DeleteTopic(ctx, "kadm"); err != nil {
		t.Fatal(err)
	}
	if after, err := kadm.NewClient(kgoClient(t, addr)).ListTopics(ctx); err != nil || after.Has("kadm") {
		t.Fatalf("after the topic was deleted: %v, %v", after, err)
	}
}
