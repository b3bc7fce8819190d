package broker

import (
	"fmt"
	"regexp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/machine/group"
	"github.com/strandline-io/strandline/broker/sequencer"
)

// ConsumerGroupHeartbeat (key 68): the pattern of v1 (RE2, matched against the whole name) is compiled and matched here,
// so that nobody's regular expression runs in the loop; a large group's assignment is made here, also for JoinGroup and Heartbeat.

func startConsumerGroupHeartbeat(c *conn, s *slot) error {
	req := s.req.(*kmsg.ConsumerGroupHeartbeatRequest)
	if req.SubscribedTopicRegex != nil && len(*req.SubscribedTopicRegex) <= group.MaxPatternBytes {
		if _, err := topicPattern(*req.SubscribedTopicRegex); err != nil {
			resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
			resp.ErrorCode = kerr.InvalidRegularExpression.Code
			resp.ErrorMessage = kmsg.StringPtr(fmt.Sprintf("SubscribedTopicRegex `%s` is not a valid regular expression: %v.", *req.SubscribedTopicRegex, err))
			s.local = resp
			return nil
		}
	}
	return startLoop(c, s)
}

// finishGroup does what a reply about a group leaves to do.
func finishGroup(c *conn, s *slot) (kmsg.Response, error) {
	r, ok := s.reply.(*machine.GroupReply)
	if !ok {
		return finishLoop(c, s)
	}
	// The member is answered without the outcome. If the connection or the broker ends before, the next heartbeat asks
	// for it again.
	if match := r.Match; match != nil {
		pattern, err := topicPattern(match.Pattern)
		if err != nil {
			return nil, err
		}
		for _, t := range c.b.engine.Board().Topics() {
			if pattern.MatchString(t.Name) {
				match.Topics = append(match.Topics, t.Name)
			}
		}
		if err := c.bringBack(s, match); err != nil {
			return nil, err
		}
	}
	if r.Assign != nil {
		r.Assign.Make()
		if err := c.bringBack(s, r.Assign); err != nil {
			return nil, err
		}
	}
	r.Response.SetVersion(s.header.Version)
	return r.Response, nil
}

// bringBack submits an operation that nobody waits for.
func (c *conn) bringBack(s *slot, body any) error {
	client := c.client(s)
	return c.b.engine.Submit(&sequencer.Operation{Op: machine.Op{Client: client, Body: body}})
}

func topicPattern(text string) (*regexp.Regexp, error) { return regexp.Compile(`^(?:` + text + `)$`) }
