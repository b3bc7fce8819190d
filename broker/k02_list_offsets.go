package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// serveListOffsets answers offsets by time.
func serveListOffsets(c *conn, s *slot) error {
	return c.respond(s, c.b.edge.ListOffsets(s.req.(*kmsg.ListOffsetsRequest), c.topicPermissions(s)))
}
