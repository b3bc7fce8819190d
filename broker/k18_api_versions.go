package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/wire"
)

// startApiVersions answers what this broker serves. It says nothing of decided state, so it waits for nothing.
func startApiVersions(c *conn, s *slot) error {
	s.local = wire.ApiVersions(s.req.(*kmsg.ApiVersionsRequest))
	return nil
}
