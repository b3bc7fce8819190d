package wire

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Buffers are pooled in size classes of powers of two between these bounds; larger ones are left to the collector.
const (
	minClassBits = 12 // 4 KiB
	maxClassBits = 24 // 16 MiB
)

// Large buffers are kept by number, up to keepBytes of them together, since they are few and the collector would
// drop them between two bursts: making one anew costs its clearing.
const (
	largeClassBits = 17 // 128 KiB
	keepBytes      = 32 << 20
)

// Pool keeps buffers for the next request or response. Its methods may be called from anywhere.
type Pool struct {
	classes [maxClassBits - minClassBits + 1]sync.Pool

	mu    sync.Mutex
	large [maxClassBits - largeClassBits + 1][]*Buffer
	kept  int // bytes in large
}

// Buffer is counted memory. Whoever is handed one owns one reference and gives it back with Release; B must not be
// used after that. B may be replaced by a longer slice while only one reference exists.
type Buffer struct {
	B []byte

	refs    atomic.Int32
	pool    *Pool // nil: left to the collector
	budget  *Budget
	charged int64
}

// Get returns an empty buffer with one reference and room for at least sizeBytes.
func (p *Pool) Get(sizeBytes int) *Buffer {
	class := classOf(sizeBytes)
	if class < 0 {
		b := &Buffer{B: make([]byte, 0, sizeBytes), pool: p}
		b.refs.Store(1)
		return b
	}
	b := p.takeLarge(class)
	if b == nil {
		b, _ = p.classes[class].Get().(*Buffer)
	}
	if b == nil {
		b = &Buffer{B: make([]byte, 0, 1<<(class+minClassBits)), pool: p}
	}
	b.refs.Store(1)
	return b
}

// classOf is the smallest class that holds sizeBytes, or -1.
func classOf(sizeBytes int) int {
	if sizeBytes > 1<<maxClassBits {
		return -1
	}
	if sizeBytes <= 1<<minClassBits {
		return 0
	}
	return bits.Len(uint(sizeBytes-1)) - minClassBits
}

// Retain adds a reference.
func (b *Buffer) Retain() { b.refs.Add(1) }

// Release takes a reference away. With the last one the memory returns to its pool and the bytes to their budget.
func (b *Buffer) Release() {
	switch n := b.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic(fmt.Sprintf("BUG: a buffer of %d bytes was released %d times too often", cap(b.B), -n))
	}
	if b.budget != nil {
		b.budget.Release(b.charged)
		b.budget, b.charged = nil, 0
	}
	if b.pool == nil {
		b.B = nil
		return
	}
	// The slice may have grown since: it goes to the class that it can serve.
	class := bits.Len(uint(cap(b.B))) - 1 - minClassBits
	if class < 0 || class >= len(b.pool.classes) || cap(b.B) > 1<<maxClassBits {
		b.B = nil
		return
	}
	b.B = b.B[:0]
	if !b.pool.keepLarge(class, b) {
		b.pool.classes[class].Put(b)
	}
}

// takeLarge returns a kept buffer of the class, or nil.
func (p *Pool) takeLarge(class int) *Buffer {
	i := class + minClassBits - largeClassBits
	if i < 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.large[i])
	if n == 0 {
		return nil
	}
	b := p.large[i][n-1]
	p.large[i][n-1] = nil
	p.large[i] = p.large[i][:n-1]
	p.kept -= cap(b.B)
	return b
}

// keepLarge keeps a buffer of a large class if there is room.
func (p *Pool) keepLarge(class int, b *Buffer) bool {
	i := class + minClassBits - largeClassBits
	if i < 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept+cap(b.B) > keepBytes {
		return false
	}
	p.large[i] = append(p.large[i], b)
	p.kept += cap(b.B)
	return true
}

// Lower gives back what the buffer was charged beyond sizeBytes: what its request takes, now that it is known.
func (b *Buffer) Lower(sizeBytes int64) {
	if spare := b.charged - max(sizeBytes, int64(cap(b.B))); b.budget != nil && spare > 0 {
		b.charged -= spare
		b.budget.Release(spare)
	}
}

// grow makes room for at least sizeBytes and keeps what B holds.
func (b *Buffer) grow(sizeBytes int) {
	if cap(b.B) >= sizeBytes {
		return
	}
	if b.pool == nil {
		b.B = append(make([]byte, 0, sizeBytes), b.B...)
		return
	}
	larger := b.pool.Get(sizeBytes)
	larger.B = append(larger.B, b.B...)
	b.B, larger.B = larger.B, b.B
	larger.Release()
}
