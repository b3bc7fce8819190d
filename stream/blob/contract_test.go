package blob_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/strandline-io/strandline/internal/vfs"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/blob/blobtest"
	"github.com/strandline-io/strandline/stream/streamtest"
)

// place is a store under the contract suite of sinks.
type place struct {
	store   blob.Store
	options []blob.Option
}

func (p *place) Open() stream.Sink {
	return blob.New("out", p.store, append([]blob.Option{blob.WithType[row]()}, p.options...)...)
}

func (p *place) Visible() ([]string, error) {
	byName, err := visible(context.Background(), p.store)
	var texts []string
	for _, rows := range byName {
		for _, n := range rows {
			texts = append(texts, p.RowText(int(n)))
		}
	}
	return texts, err
}

func (p *place) Row(n int) stream.SinkRecord { return record(int64(n)) }
func (p *place) RowText(n int) string        { return fmt.Sprintf("row %d", n) }

func TestSinkContract(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	small := func(c *blob.Config) { // another one for every owner
		c.Codec = blob.Snappy
		c.MaxRows = rng.Int64N(8)
		c.BlockBytes, c.AvroBlockBytes = 1+rng.IntN(80), 1+rng.IntN(40)
	}
	t.Run("fake", func(t *testing.T) {
		streamtest.TestSink(t, func(*testing.T) streamtest.SinkUnderTest {
			return &place{store: blobtest.NewFake().Client("a"), options: []blob.Option{small}}
		})
	})
	t.Run("folder", func(t *testing.T) {
		streamtest.TestSink(t, func(*testing.T) streamtest.SinkUnderTest {
			return &place{store: blob.NewFolder(vfs.NewMem(), "memory", nil), options: []blob.Option{small}}
		})
	})
	t.Run("defaults", func(t *testing.T) {
		streamtest.TestSink(t, func(*testing.T) streamtest.SinkUnderTest {
			return &place{store: blobtest.NewFake().Client("a")}
		})
	})
}
