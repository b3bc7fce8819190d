package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// FetchConfig bounds a Fetcher. A zero field has the default named with it.
type FetchConfig struct {
	// MaxWait is how long a broker holds a fetch for which it has nothing. Default 250 ms. It is also how often a
	// partition without records reports that it was asked.
	MaxWait time.Duration
	// MaxBytes bounds one answer. Default 8 MiB.
	MaxBytes int32
	// MaxPartitionBytes bounds a partition's share of one answer. Default 1 MiB.
	MaxPartitionBytes int32
	// Isolation is Committed by default.
	Isolation Isolation
	// MissingAfter is how long a topic may be unknown to the cluster before its partitions end with a
	// *MissingTopicError. Default 10 s.
	MissingAfter time.Duration
	// TopicIDs are the ids that topics must have; a partition of a topic with another id ends with a
	// *RecreatedTopicError. A topic that is not named may have any.
	TopicIDs map[string]string
}

const (
	defaultFetchMaxWait           = 250 * time.Millisecond
	defaultFetchMaxBytes          = 8 << 20
	defaultFetchMaxPartitionBytes = 1 << 20
	defaultMissingAfter           = 10 * time.Second
	// maxUnreleased is how many batches of a partition may wait for their owner: one in work, one ahead.
	maxUnreleased = 2
)

// Fetcher reads partitions at positions that its owner sets. One worker owns it; its goroutines are ended by Close.
//
// Every successful fetch yields a Batch for each partition asked, also an empty one: silence is news for whoever
// decides about idleness. A partition is asked again only while fewer than two of its batches are unreleased, so a
// slow owner holds at most twice MaxPartitionBytes per partition (more only if one record batch is larger).
//
// It has connections of its own: a broker answers the requests of a connection one after the other, so everything else
// would wait behind a fetch that waits for records.
type Fetcher struct {
	c      *Client
	cfg    FetchConfig
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // to the loop: something became fetchable
	ready  chan struct{} // to the owner: batches wait
	done   sync.WaitGroup
	routes router

	mu    sync.Mutex
	parts map[TopicPartition]*fetchPart
	queue []Batch
	busy  map[int32]bool // leaders with a request in flight
}

type fetchPart struct {
	token      uint64
	offset     int64
	unreleased int
	asked      bool
	paused     bool
	ended      bool
	missing    time.Time // since when the topic is unknown
}

// NewFetcher starts a reader without partitions.
func (c *Client) NewFetcher(cfg FetchConfig) (*Fetcher, error) {
	kc, err := kgo.NewClient(c.cfg.options()...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = defaultFetchMaxWait
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = defaultFetchMaxBytes
	}
	if cfg.MaxPartitionBytes == 0 {
		cfg.MaxPartitionBytes = defaultFetchMaxPartitionBytes
	}
	if cfg.MissingAfter == 0 {
		cfg.MissingAfter = defaultMissingAfter
	}
	f := &Fetcher{
		c: &Client{cfg: c.cfg, kc: kc, link: kgoLink{kc}}, cfg: cfg,
		wake:  make(chan struct{}, 1),
		ready: make(chan struct{}, 1),
		parts: make(map[TopicPartition]*fetchPart),
		busy:  make(map[int32]bool),
	}
	f.routes.ids = cfg.TopicIDs
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.done.Add(1)
	go f.loop()
	return f, nil
}

// Close ends all fetches and waits for them.
func (f *Fetcher) Close() {
	f.cancel()
	f.done.Wait()
	f.c.kc.Close()
}

// Ready has a value whenever Take has a batch to give.
func (f *Fetcher) Ready() <-chan struct{} { return f.ready }

// Add reads tp from an offset on. A partition that is there already is set anew: nothing fetched before is given any
// more under the new token.
func (f *Fetcher) Add(tp TopicPartition, offset int64, token uint64) {
	f.mu.Lock()
	f.drop(tp)
	f.parts[tp] = &fetchPart{token: token, offset: offset}
	f.mu.Unlock()
	signal(f.wake)
}

// Remove stops reading tp and forgets what was fetched of it.
func (f *Fetcher) Remove(tp TopicPartition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(tp)
}

// RemoveAll stops reading everything.
func (f *Fetcher) RemoveAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.parts)
	f.queue = nil
}

func (f *Fetcher) drop(tp TopicPartition) {
	delete(f.parts, tp)
	f.queue = slices.DeleteFunc(f.queue, func(b Batch) bool { return b.TopicPartition == tp })
}

// Pause keeps tp and its position but asks for no more of it. Batches already fetched still come.
func (f *Fetcher) Pause(tp TopicPartition) { f.setPaused(tp, true) }

// Resume ends a Pause.
func (f *Fetcher) Resume(tp TopicPartition) { f.setPaused(tp, false) }

func (f *Fetcher) setPaused(tp TopicPartition, paused bool) {
	f.mu.Lock()
	if p := f.parts[tp]; p != nil {
		p.paused = paused
	}
	f.mu.Unlock()
	signal(f.wake)
}

// Take gives the oldest batch that waits. Its owner calls Release when it has dealt with it.
func (f *Fetcher) Take() (Batch, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return Batch{}, false
	}
	b := f.queue[0]
	f.queue[0] = Batch{}
	f.queue = f.queue[1:]
	if len(f.queue) > 0 {
		signal(f.ready)
	}
	return b, true
}

// Release lets the partition of a taken batch fetch ahead again.
func (f *Fetcher) Release(b Batch) {
	if b.Unreachable != nil {
		return
	}
	f.mu.Lock()
	if p := f.parts[b.TopicPartition]; p != nil && p.token == b.Token && p.unreleased > 0 {
		p.unreleased--
	}
	f.mu.Unlock()
	signal(f.wake)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// loop starts one request per leader whenever that leader is free and has something to be asked.
func (f *Fetcher) loop() {
	defer f.done.Done()
	for {
		f.start()
		select {
		case <-f.ctx.Done():
			return
		case <-f.wake:
		}
	}
}

// start launches what can be asked now.
func (f *Fetcher) start() {
	f.mu.Lock()
	var want []TopicPartition
	for tp, p := range f.parts {
		if !p.asked && !p.paused && !p.ended && p.unreleased < maxUnreleased {
			want = append(want, tp)
		}
	}
	f.mu.Unlock()
	if len(want) == 0 {
		return
	}
	slices.SortFunc(want, TopicPartition.Compare)
	routes, err := f.c.look(f.ctx, &f.routes, want)
	if err != nil {
		f.lookFailed(want, err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	byLeader := make(map[int32][]position)
	tokens := make(map[TopicPartition]uint64, len(want))
	unrouted := false
	for _, tp := range want {
		p, rt := f.parts[tp], routes[tp]
		if p == nil || p.asked {
			continue
		}
		if _, ok := routes[tp]; !ok {
			unrouted = true
			continue
		}
		if f.busy[rt.leader] {
			continue
		}
		byLeader[rt.leader] = append(byLeader[rt.leader], position{tp, rt, p.offset})
		tokens[tp] = p.token
		p.asked = true
		p.missing = time.Time{}
	}
	for leader, at := range byLeader {
		f.busy[leader] = true
		f.done.Add(1)
		go f.ask(leader, at, tokens)
	}
	if unrouted {
		f.later(retryPause)
	}
}

// lookFailed waits for a cluster that does not answer, and ends partitions whose topic stays unknown or is another.
func (f *Fetcher) lookFailed(want []TopicPartition, err error) {
	patience, topic := f.cfg.MissingAfter, ""
	if e, ok := errors.AsType[*MissingTopicError](err); ok {
		topic = e.Topic
	} else if e, ok := errors.AsType[*RecreatedTopicError](err); ok {
		topic, patience = e.Topic, 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, tp := range want {
		p := f.parts[tp]
		if topic == "" {
			f.unreachable(tp, err)
		}
		if p == nil || tp.Topic != topic {
			continue
		}
		if p.missing.IsZero() {
			p.missing = now
		}
		if now.Sub(p.missing) >= patience {
			p.ended = true
			f.push(Batch{TopicPartition: tp, Token: p.token, NextOffset: p.offset, Err: err})
		}
	}
	f.later(maxRetryPause)
}

// later wakes the loop after d.
func (f *Fetcher) later(d time.Duration) {
	f.done.Add(1)
	go func() {
		defer f.done.Done()
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-f.ctx.Done():
		case <-t.C:
			signal(f.wake)
		}
	}()
}

// ask runs one request and hands its batches over.
func (f *Fetcher) ask(leader int32, at []position, tokens map[TopicPartition]uint64) {
	defer f.done.Done()
	batches, err := f.c.fetchOnce(f.ctx, leader, at, fetchLimits{
		maxWait: f.cfg.MaxWait, maxBytes: f.cfg.MaxBytes, maxPartitionBytes: f.cfg.MaxPartitionBytes, isolation: f.cfg.Isolation,
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.busy, leader)
	for _, a := range at {
		if p := f.parts[a.TopicPartition]; p != nil && p.token == tokens[a.TopicPartition] {
			p.asked = false
		}
	}
	if err != nil {
		for _, a := range at {
			f.routes.forget(a.TopicPartition)
			f.unreachable(a.TopicPartition, err)
		}
		f.later(retryPause)
		return
	}
	pause := false
	for _, b := range batches {
		p := f.parts[b.TopicPartition]
		if p == nil || p.token != tokens[b.TopicPartition] {
			continue // removed or set anew meanwhile
		}
		b.Token = p.token
		pause = f.accept(p, b) || pause
	}
	if pause {
		f.later(retryPause)
		return
	}
	signal(f.wake)
}

// accept queues what a fetch told of a partition and reports whether the next try should wait a little.
func (f *Fetcher) accept(p *fetchPart, b Batch) (wait bool) {
	switch {
	case b.Err == nil:
		p.offset = b.NextOffset
		f.push(b)
		p.unreleased++
		return false
	case moved(b.Err):
		f.routes.forget(b.TopicPartition)
		return true
	case errors.Is(b.Err, kerr.OffsetOutOfRange):
		b.Err = &OffsetRangeError{TopicPartition: b.TopicPartition, Position: p.offset, LogStart: b.LogStartOffset}
	}
	p.ended = true
	f.push(b)
	return false
}

// unreachable reports an outage once, until the owner has taken the report.
func (f *Fetcher) unreachable(tp TopicPartition, err error) {
	p := f.parts[tp]
	if p == nil || slices.ContainsFunc(f.queue, func(b Batch) bool { return b.TopicPartition == tp && b.Unreachable != nil }) {
		return
	}
	f.push(Batch{TopicPartition: tp, Token: p.token, NextOffset: p.offset, Unreachable: err})
}

func (f *Fetcher) push(b Batch) {
	f.queue = append(f.queue, b)
	signal(f.ready)
}
