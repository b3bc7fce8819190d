package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine"
)

// startProduce judges the batches of the request and submits them.
func startProduce(c *conn, s *slot) error {
	s.produce = c.b.edge.Produce(s.req.(*kmsg.ProduceRequest), int64(c.b.cfg.MaxRequestBytes)-int64(len(s.frame.B)))
	return c.submitProduce(s)
}

// submitProduce hands the operation to the loop. The bytes of the frame and of rebuilt batches must stay until the
// journal has written them.
func (c *conn) submitProduce(s *slot) error {
	frame := s.frame
	frame.Retain()
	grownBytes, release := s.produce.Grown()
	written := func() {
		frame.Release()
		release()
	}
	if err := c.submit(s, &s.produce.Op, int64(len(frame.B))+grownBytes, written); err != nil {
		written()
		return err
	}
	return nil
}

// finishProduce submits again what came back stale, and answers when nothing is. Without acks a nil response answers
// nothing.
func finishProduce(c *conn, s *slot) (kmsg.Response, error) {
	for {
		reply, ok := s.reply.(*machine.ProduceReply)
		if !ok {
			panic(fmt.Sprintf("BUG: the loop answered a Produce with a %T", s.reply))
		}
		if !s.produce.Again(reply) {
			resp, err := s.produce.Response()
			if resp == nil || err != nil {
				return nil, err
			}
			return resp, nil
		}
		if err := c.submitProduce(s); err != nil {
			return nil, err
		}
		if err := c.await(s); err != nil {
			return nil, err
		}
		if _, late := s.reply.(*machine.Hangup); late {
			return nil, errLate
		}
	}
}
