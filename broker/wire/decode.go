package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// MaxProducePartitions bounds the partitions, and the topics, of one Produce request.
const MaxProducePartitions = 1 << 16

// Decode reads the body of a request whose header ParseHeader found to be served. Strings are copied, byte fields are
// parts of body.
func Decode(h Header, body []byte) (kmsg.Request, error) {
	req := kmsg.RequestForKey(h.Key)
	if req == nil {
		return nil, fmt.Errorf("%w: unknown key %d", ErrMalformed, h.Key)
	}
	req.SetVersion(h.Version)
	if h.Key == KeyProduce {
		if err := checkProduce(h.Version, body); err != nil {
			return nil, fmt.Errorf("request Produce version %d: %w", h.Version, err)
		}
	}
	if err := req.ReadFrom(body); err != nil {
		api, _ := Lookup(h.Key)
		return nil, fmt.Errorf("%w: %s version %d, body of %d bytes: %w", ErrMalformed, api.Name, h.Version, len(body), err)
	}
	return req, nil
}

// checkProduce counts the topics and partitions of a Produce body before anything is allocated for them: its frames
// may be a hundred times larger than others, but a decoded topic takes many times the two bytes that announce it.
func checkProduce(version int16, body []byte) error {
	s := scanner{b: body, flexible: version >= 9}
	if version >= 3 {
		s.nullableString() // transactional id
	}
	s.skip(2 + 4) // acks, timeout
	topics := s.arrayLen()
	partitions := 0
	for range topics {
		if version >= 13 {
			s.skip(16)
		} else {
			s.nullableString()
		}
		n := s.arrayLen()
		if partitions += n; topics > MaxProducePartitions || partitions > MaxProducePartitions {
			return fmt.Errorf("%w: more than %d topics or partitions in one request", ErrMalformed, MaxProducePartitions)
		}
		for range n {
			s.skip(4)
			s.nullableBytes()
			s.tags()
		}
		s.tags()
		if s.failed {
			break
		}
	}
	s.tags()
	if s.failed {
		return fmt.Errorf("%w: the body of %d bytes ends early or has a bad length", ErrMalformed, len(body))
	}
	return nil
}

// scanner walks over an encoded body without keeping anything. After a failure every call does nothing.
type scanner struct {
	b        []byte
	flexible bool
	failed   bool
	tagCount int
}

func (s *scanner) skip(n int) {
	if s.failed || n < 0 || n > len(s.b) {
		s.failed = true
		return
	}
	s.b = s.b[n:]
}

// length reads a length field of the old width, or a compact one, and returns -1 for null.
func (s *scanner) length(oldBytes int) int {
	if s.failed {
		return -1
	}
	if s.flexible {
		v, rest, err := uvarint(s.b)
		if err != nil {
			s.failed = true
			return -1
		}
		s.b = rest
		return int(v) - 1
	}
	if len(s.b) < oldBytes {
		s.failed = true
		return -1
	}
	n := 0
	if oldBytes == 2 {
		n = int(int16(binary.BigEndian.Uint16(s.b)))
	} else {
		n = int(int32(binary.BigEndian.Uint32(s.b)))
	}
	s.b = s.b[oldBytes:]
	if n < -1 {
		s.failed = true
	}
	return n
}

func (s *scanner) nullableString() {
	if n := s.length(2); n > 0 {
		s.skip(n)
	}
}

func (s *scanner) nullableBytes() {
	if n := s.length(4); n > 0 {
		s.skip(n)
	}
}

// arrayLen returns how many elements follow; each takes at least one byte.
func (s *scanner) arrayLen() int {
	n := s.length(4)
	if n > len(s.b) {
		s.failed = true
	}
	if s.failed || n < 0 {
		return 0
	}
	return n
}

// tags reads over a section of tagged fields. Decoding keeps the unknown ones, so they are counted.
func (s *scanner) tags() {
	if !s.flexible || s.failed {
		return
	}
	count, rest, err := skipTags(s.b)
	if s.tagCount += int(count); err != nil || s.tagCount > MaxProducePartitions {
		s.failed = true
		return
	}
	s.b = rest
}
