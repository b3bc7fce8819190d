package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/wire"
)

// startApiVersions answers what this broker serves, and the published feature levels. It waits for nothing: a client asks
// before it knows anything else.
func startApiVersions(c *conn, s *slot) error {
	published := c.b.engine.Board().Features()
	features := wire.Features{Epoch: published.Epoch, All: make([]wire.Feature, len(published.All))}
	for i, f := range published.All {
		features.All[i] = wire.Feature{Name: f.Name, Min: f.Min, Max: f.Max, Finalized: f.Level}
	}
	s.local = wire.ApiVersions(s.req.(*kmsg.ApiVersionsRequest), features)
	return nil
}
