// Package wire turns bytes into kmsg requests and responses into bytes: frames with bounds, headers, the table of
// served versions, and a Fetch encoder that never copies record data. Everything it reads is hostile: it refuses,
// it never panics, and what it allocates is a bounded multiple of what was sent (DecodeFactor).
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// KeyProduce, KeyFetch and KeyApiVersions are the API keys that this package treats on their own.
const (
	KeyProduce     int16 = 0
	KeyFetch       int16 = 1
	KeyApiVersions int16 = 18
)

// ErrMalformed is wrapped by every error that says that a frame's bytes are not what their header promises. Kafka
// closes the connection on it, and so must the caller: there is no reply that the client could understand.
var ErrMalformed = errors.New("malformed request")

// Header is a request's header, versions 0 to 2 (KIP-482). ClientID is empty when it was null or, in version 0,
// absent.
type Header struct {
	Key           int16
	Version       int16
	CorrelationID int32
	ClientID      string
}

// headerMinBytes is key, version and correlation id.
const headerMinBytes = 8

// ParseHeader splits a frame (without its length) into header and body. The body is a part of frame. lastClientID is
// what the connection's last request named; it is returned again, without allocation, if it is the same.
//
// The header of a request whose key or version this broker does not serve is parsed only up to the correlation id,
// since nobody knows its form; ok is false then.
func ParseHeader(frame []byte, lastClientID string) (h Header, body []byte, ok bool, err error) {
	if len(frame) < headerMinBytes {
		return Header{}, nil, false, fmt.Errorf("%w: %d bytes cannot hold a request header", ErrMalformed, len(frame))
	}
	h.Key = int16(binary.BigEndian.Uint16(frame))
	h.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	api, known := Lookup(h.Key)
	if !known || !api.Serves(h.Version) {
		return h, nil, false, nil
	}
	rest := frame[headerMinBytes:]
	if h.ClientID, rest, err = clientID(rest, lastClientID); err != nil {
		return h, nil, false, err
	}
	if api.Flexible(h.Version) {
		if _, rest, err = skipTags(rest); err != nil {
			return h, nil, false, err
		}
	}
	return h, rest, true, nil
}

// clientID reads the client id, which is a nullable string with a 16-bit length even in flexible headers: a client
// asks for ApiVersions before it knows what the broker understands.
func clientID(b []byte, last string) (id string, rest []byte, err error) {
	if len(b) < 2 {
		return "", nil, fmt.Errorf("%w: the header ends before the client id", ErrMalformed)
	}
	n := int(int16(binary.BigEndian.Uint16(b)))
	b = b[2:]
	if n < 0 {
		if n != -1 {
			return "", nil, fmt.Errorf("%w: client id of length %d", ErrMalformed, n)
		}
		return "", b, nil
	}
	if n > len(b) {
		return "", nil, fmt.Errorf("%w: client id of %d bytes in %d", ErrMalformed, n, len(b))
	}
	if string(b[:n]) == last {
		return last, b[n:], nil
	}
	return string(b[:n]), b[n:], nil
}

// skipTags reads over a section of tagged fields without keeping any: no tag of a request header means anything yet.
func skipTags(b []byte) (count uint32, rest []byte, err error) {
	if count, b, err = uvarint(b); err != nil {
		return 0, nil, err
	}
	for range count {
		if _, b, err = uvarint(b); err != nil {
			return 0, nil, err
		}
		var size uint32
		if size, b, err = uvarint(b); err != nil {
			return 0, nil, err
		}
		if uint64(size) > uint64(len(b)) {
			return 0, nil, fmt.Errorf("%w: tagged field of %d bytes in %d", ErrMalformed, size, len(b))
		}
		b = b[size:]
	}
	return count, b, nil
}

func uvarint(b []byte) (uint32, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 || n > 5 || v > 1<<32-1 {
		return 0, nil, fmt.Errorf("%w: bad varint", ErrMalformed)
	}
	return uint32(v), b[n:], nil
}

// AppendResponse appends a whole response frame: length, header, body. The body is encoded in the version that resp
// is set to. The header has a tag section if the version is flexible, except for ApiVersions, whose header is always
// version 0 (KIP-511).
func AppendResponse(dst []byte, correlationID int32, resp kmsg.Response) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = appendResponseHeader(dst, correlationID, resp.IsFlexible() && resp.Key() != KeyApiVersions)
	dst = resp.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

func appendResponseHeader(dst []byte, correlationID int32, tags bool) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if tags {
		dst = append(dst, 0)
	}
	return dst
}
