package broker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/internal/vfs"
)

// TestRestartKeepsWhatWasAcknowledged stops a broker cleanly and starts it again, on either durability.
func TestRestartKeepsWhatWasAcknowledged(t *testing.T) {
	for _, durability := range []broker.Durability{broker.DurabilityFsync, broker.DurabilityWrite} {
		t.Run(fmt.Sprint(durability), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "not", "there", "yet")
			options := []brokertest.Option{brokertest.Dir(dir), brokertest.Configure(func(c *broker.Config) { c.Durability = durability })}
			b := brokertest.Start(t, options...)
			c := dial(t, b)
			id := createTopic(c, "t", 1)
			produce(c, "t", 0, batchOf(1, "a", "b"))
			initProducer(c, "left open").write("t", id, 0, "c")
			cluster := b.ClusterID()
			c.conn.Close()
			if err := b.Stop(); err != nil {
				t.Fatal(err)
			}

			b = brokertest.Start(t, options...)
			if b.ClusterID() != cluster {
				t.Errorf("the cluster id changed from %s to %s", cluster, b.ClusterID())
			}
			c = dial(t, b)
			p := fetched(ask[*kmsg.FetchResponse](c, fetchRequest("t", 0, 0)))
			if diff := cmp.Diff([]string{"a", "b", "c"}, valuesOf(t, p.RecordBatches)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if p.LastStableOffset != 2 || p.HighWatermark != 3 {
				t.Errorf("last stable offset %d, high watermark %d", p.LastStableOffset, p.HighWatermark)
			}
			if got := produce(c, "t", 0, batchOf(1, "d")); got != 3 {
				t.Errorf("offset %d", got)
			}
			// The leader epoch has risen; the old one ends where this run's first batch lies.
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.Version = 4
			rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			rt.Topic = "t"
			rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			rp.CurrentLeaderEpoch, rp.LeaderEpoch = -1, 1
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			end := ask[*kmsg.OffsetForLeaderEpochResponse](c, req).Topics[0].Partitions[0]
			if end.LeaderEpoch != 1 || end.EndOffset != 3 {
				t.Errorf("epoch 1 ends: %+v", end)
			}
			fetch := fetchRequest("t", 0, 0)
			fetch.Topics[0].Partitions[0].CurrentLeaderEpoch = 1
			if code := fetched(ask[*kmsg.FetchResponse](c, fetch)).ErrorCode; code != 74 {
				t.Errorf("the old epoch is answered with code %d", code)
			}
		})
	}
}

func TestSecondBrokerOnOneFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	b := brokertest.Start(t, brokertest.Dir(dir))
	_, err := broker.New(broker.Config{Listen: "127.0.0.1:0", DataDir: dir})
	if !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("the second broker: %v", err)
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	again, err := broker.New(broker.Config{Listen: "127.0.0.1:0", DataDir: dir})
	if err != nil {
		t.Fatalf("after the first has stopped: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestDamagedClusterIDIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cluster-id"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := broker.New(broker.Config{Listen: "127.0.0.1:0", DataDir: dir})
	if err == nil || !strings.Contains(err.Error(), "cluster-id") {
		t.Errorf("a damaged cluster id: %v", err)
	}
}

func TestServeOnceOnly(t *testing.T) {
	b := brokertest.Start(t)
	ask[*kmsg.ApiVersionsResponse](dial(t, b), kmsg.NewPtrApiVersionsRequest())
	if err := b.Serve(context.Background()); err == nil {
		t.Error("served twice")
	}
}
