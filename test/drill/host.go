//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/test/peers"
)

// host stands in for a test, so that package peers serves a program too.
type host struct {
	testing.TB // nil: what is not here is not used
	ctx        context.Context
	mu         sync.Mutex
	cleanups   []func()
}

func newHost(ctx context.Context) *host { return &host{ctx: ctx} }

// hostFailure is what a Fatal call panics with.
type hostFailure struct{ message string }

func (h *host) Helper()                           {}
func (h *host) Failed() bool                      { return false }
func (h *host) Context() context.Context          { return h.ctx }
func (h *host) Logf(format string, args ...any)   {}
func (h *host) Fatal(args ...any)                 { panic(hostFailure{fmt.Sprint(args...)}) }
func (h *host) Fatalf(format string, args ...any) { panic(hostFailure{fmt.Sprintf(format, args...)}) }

func (h *host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cleanups = append(h.cleanups, f)
}

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "strandline-drill-")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (h *host) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.cleanups) - 1; i >= 0; i-- {
		h.cleanups[i]()
	}
}

// hostError makes an error of what was recovered from a Fatal call.
func hostError(p any) error {
	f, ok := p.(hostFailure)
	if !ok {
		panic(p)
	}
	return errors.New(f.message)
}

// cluster is the Apache Kafka that all rounds of a run share.
type cluster struct {
	h *host
	*peers.ApacheKafka
}

func startCluster(h *host) *cluster { return &cluster{h, peers.StartApacheKafka(h)} }

// killAndRestart returns when the broker answers again, about 12 s later.
func (c *cluster) killAndRestart() {
	c.Kill()
	c.Again(c.h)
}

// forget deletes the topics of a round, so that the cluster does not fill up.
func (c *cluster) forget(ctx context.Context, job string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addr))
	if err != nil {
		return
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return
	}
	var names []string
	for _, name := range topics.Names() {
		if len(name) > len(job) && name[:len(job)+1] == job+"-" {
			names = append(names, name)
		}
	}
	_, _ = admin.DeleteTopics(ctx, names...) // what stays is only in the way
}

// azuriteStore is a container of its own for a round.
func azuriteStore(endpoint string, seed uint64) (url string, env []string) {
	url = fmt.Sprintf("azblob://%s/drill-%d-%d/out", blob.AzuriteAccount, seed, time.Now().UnixNano())
	return url, []string{blob.EnvKey + "=" + blob.AzuriteKey, blob.EnvEndpoint + "=" + endpoint}
}
