package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// serveOffsetForLeaderEpoch answers where epochs end (KIP-101, KIP-320).
func serveOffsetForLeaderEpoch(c *conn, s *slot) error {
	return c.respond(s, c.b.edge.OffsetForLeaderEpoch(s.req.(*kmsg.OffsetForLeaderEpochRequest), c.topicPermissions(s)))
}
