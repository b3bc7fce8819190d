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
// so that nobody's regular expression runs in the loop.

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

func finishConsumerGroupHeartbeat(c *conn, s *slot) (kmsg.Response, error) {
	r, ok := s.reply.(*machine.HeartbeatReply)
	if !ok {
		return finishLoop(c, s)
	}
	match := r.Match
	pattern, err := topicPattern(match.Pattern)
	if err != nil {
		return nil, err
	}
	for _, t := range c.b.engine.Board().Topics() {
		if pattern.MatchString(t.Name) {
			match.Topics = append(match.Topics, t.Name)
		}
	}
	// The member is answered without it. If the broker stops, the next run asks again.
	client := machine.Client{ID: s.header.ClientID, Host: c.clientHost, Principal: c.session.principal}
	if err := c.b.engine.Submit(&sequencer.Operation{Op: machine.Op{Client: client, Body: match}}); err != nil {
		return nil, err
	}
	r.Response.Version = s.header.Version
	return r.Response, nil
}

func topicPattern(text string) (*regexp.Regexp, error) { return regexp.Compile(`^(?:` + text + `)$`) }
