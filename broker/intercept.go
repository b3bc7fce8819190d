package broker

import (
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Request is a client's request as Config.Intercept sees it. Body must not be changed, and not be used after
// Intercept has returned.
type Request struct {
	Key, Version int16
	ClientID     string
	RemoteAddr   net.Addr
	Body         kmsg.Request
}

// Fate is what happens to an intercepted request. The zero value lets it pass.
type Fate struct {
	// Reply, when not nil, is the answer; the broker itself never sees the request. Its type must be the request's
	// response.
	Reply kmsg.Response
	// LoseRequest closes the connection instead of handling the request, as if it had never arrived.
	LoseRequest bool
	// LoseReply handles the request and closes the connection instead of answering: the client cannot know the
	// outcome.
	LoseReply bool
}
