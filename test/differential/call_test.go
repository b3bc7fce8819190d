//go:build peers

package differential

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// answerWithin bounds how long a broker may take for one answer.
const answerWithin = time.Minute

// errClosed is the answer of a broker that closes the connection.
var errClosed = errors.New("connection closed")

// side is one of the two brokers, with a connection for each virtual client.
type side struct {
	name  string
	addr  string
	conns map[int]net.Conn
	next  int32
}

func newSide(name, addr string) *side {
	return &side{name: name, addr: addr, conns: make(map[int]net.Conn)}
}

func (s *side) close() {
	for _, c := range s.conns {
		c.Close()
	}
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("differential"))

// send writes a request on a client's connection and returns its correlation id.
func (s *side) send(client int, req kmsg.Request) (int32, error) {
	c := s.conns[client]
	if c == nil {
		var err error
		if c, err = net.DialTimeout("tcp", s.addr, answerWithin); err != nil {
			return 0, err
		}
		s.conns[client] = c
	}
	s.next++
	c.SetDeadline(time.Now().Add(answerWithin))
	if _, err := c.Write(formatter.AppendRequest(nil, req, s.next)); err != nil {
		return 0, s.drop(client, err)
	}
	return s.next, nil
}

// receive reads the answer to a request that was sent.
func (s *side) receive(client int, id int32, req kmsg.Request) (kmsg.Response, error) {
	c := s.conns[client]
	if c == nil {
		return nil, errClosed
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, s.drop(client, err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		return nil, s.drop(client, err)
	}
	if got := int32(binary.BigEndian.Uint32(body)); got != id {
		return nil, fmt.Errorf("%s answered request %d, asked was %d", s.name, got, id)
	}
	resp := req.ResponseKind()
	body = body[4:]
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		body = skipTags(body)
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%s: %T version %d cannot be read: %w", s.name, resp, resp.GetVersion(), err)
	}
	return resp, nil
}

// call sends one request and reads its answer. A Produce without answer is followed by a request that has one.
func (s *side) call(client int, req kmsg.Request) (kmsg.Response, error) {
	id, err := s.send(client, req)
	if err != nil {
		return nil, err
	}
	if p, ok := req.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
		req = kmsg.NewPtrApiVersionsRequest()
		if id, err = s.send(client, req); err != nil {
			return nil, err
		}
		if _, err := s.receive(client, id, req); err != nil {
			return nil, err
		}
		return p.ResponseKind(), nil
	}
	return s.receive(client, id, req)
}

// drop forgets a connection that failed.
func (s *side) drop(client int, err error) error {
	s.conns[client].Close()
	delete(s.conns, client)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("%s did not answer within %v", s.name, answerWithin)
	}
	return errClosed
}

// skipTags reads over the tagged fields of a response's header.
func skipTags(b []byte) []byte {
	count, n := binary.Uvarint(b)
	b = b[n:]
	for range count {
		_, n := binary.Uvarint(b)
		b = b[n:]
		size, n := binary.Uvarint(b)
		b = b[n+int(size):]
	}
	return b
}
