package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Sizes of frame reading.
const (
	// DefaultMaxRequestBytes is the largest frame that is read (socket.request.max.bytes of Apache Kafka).
	DefaultMaxRequestBytes = 100 << 20
	// DefaultMaxControlBytes is the largest frame of everything but Produce. Their decoded form may be much larger
	// than their bytes, see DecodeFactor.
	DefaultMaxControlBytes = 4 << 20
	// DecodeFactor bounds how many bytes decoding takes for each byte of a frame: a topic without a name is announced
	// by two bytes. Requests other than Produce are charged with it until it is known how large they are (Lower).
	DecodeFactor = 128

	readBufferBytes = 8 << 10
	// trustedBytes of a frame are allocated as soon as the client announces them; more only as they arrive.
	trustedBytes = 4 << 20
	// pieceBytes must arrive within the stall timeout.
	pieceBytes = 1 << 20
	// While others wait for admission, contendedBytes must arrive in each contendedWindow: about the same rate.
	contendedBytes  = 32 << 10
	contendedWindow = time.Second
)

// ReaderConfig bounds what a Reader reads. All fields are required.
type ReaderConfig struct {
	MaxRequestBytes int32
	MaxControlBytes int32
	// IdleTimeout ends the wait for the next frame, StallTimeout the wait for the next piece of one that has begun.
	IdleTimeout  time.Duration
	StallTimeout time.Duration
	Admission    *Admission
	Pool         *Pool
}

// Reader cuts a connection's bytes into frames. It belongs to one goroutine.
type Reader struct {
	cfg  ReaderConfig
	conn net.Conn
	src  *bufio.Reader
}

// NewReader returns a reader of conn's frames. It sets conn's read deadlines.
func NewReader(conn net.Conn, cfg ReaderConfig) *Reader {
	return &Reader{cfg: cfg, conn: conn, src: bufio.NewReaderSize(conn, readBufferBytes)}
}

// Head is what is known of a frame before its bytes are admitted.
type Head struct {
	SizeBytes    int32 // without the length field
	Key, Version int16
}

// ErrIdle is what Head returns, wrapped, when nothing at all arrived within the idle timeout. It may be called again.
var ErrIdle = errors.New("no request within the idle timeout")

// Head waits for the next frame and reads its first 8 bytes. io.EOF means that the client closed between two frames.
func (r *Reader) Head() (Head, error) {
	if r.src.Buffered() == 0 {
		r.expect(r.cfg.IdleTimeout)
		if _, err := r.src.Peek(1); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return Head{}, fmt.Errorf("%w of %v", ErrIdle, r.cfg.IdleTimeout)
			}
			return Head{}, err
		}
	}
	if r.src.Buffered() < headBytes {
		r.expect(r.cfg.StallTimeout)
	}
	b, err := r.src.Peek(headBytes)
	if err != nil {
		return Head{}, cutShort(err, len(b), headBytes)
	}
	h := Head{
		SizeBytes: int32(binary.BigEndian.Uint32(b)),
		Key:       int16(binary.BigEndian.Uint16(b[4:])),
		Version:   int16(binary.BigEndian.Uint16(b[6:])),
	}
	return h, r.checkSize(h, b)
}

// expect sets the deadline of what is read next. If the connection is broken, reading tells.
func (r *Reader) expect(within time.Duration) { _ = r.conn.SetReadDeadline(time.Now().Add(within)) }

const (
	lengthBytes = 4
	// headBytes is the length field, the key and the version.
	headBytes = lengthBytes + 4
)

// checkSize refuses frames that are too small or too large. A first look at the bytes tells the usual mistakes.
func (r *Reader) checkSize(h Head, b []byte) error {
	limit := r.cfg.MaxRequestBytes
	if h.Key != KeyProduce {
		limit = min(limit, r.cfg.MaxControlBytes)
	}
	if h.SizeBytes >= headerMinBytes && h.SizeBytes <= limit {
		return nil
	}
	hint := ""
	switch {
	case b[0] == 0x16 && b[1] == 0x03:
		hint = " (this looks like TLS, which this listener does not speak)"
	case string(b[:4]) == "GET " || string(b[:4]) == "POST" || string(b[:4]) == "HEAD" || string(b[:4]) == "PUT ":
		hint = " (this looks like HTTP; the port speaks the Kafka protocol)"
	}
	return fmt.Errorf("%w: frame of %d bytes for key %d, want %d to %d%s",
		ErrMalformed, h.SizeBytes, h.Key, headerMinBytes, limit, hint)
}

// Frame reads the frame whose head Head has just returned, after its bytes were admitted. The buffer holds the frame
// without its length field and has one reference; its share of the admission returns with the last one. Produce
// frames are pooled: their bytes may be read only while a reference is held. All others are left to the collector,
// so that what was decoded from them may be kept. cancel ends the wait for admission.
//
// Nothing is charged for bytes that are only announced: before it asks for admission, as much of the frame must have
// arrived as the read buffer holds, which for most frames is all.
func (r *Reader) Frame(h Head, cancel <-chan struct{}) (*Buffer, error) {
	charge := int64(h.SizeBytes)
	if h.Key != KeyProduce {
		charge *= DecodeFactor
	}
	size := int(h.SizeBytes)
	whole := lengthBytes+size <= readBufferBytes
	first := min(lengthBytes+size, readBufferBytes)
	if r.src.Buffered() < first {
		r.expect(r.cfg.StallTimeout)
		if b, err := r.src.Peek(first); err != nil {
			return nil, cutShort(err, len(b)-lengthBytes, size)
		}
	}
	lane := r.cfg.Admission.lane(charge, whole)
	taken, ok := lane.Acquire(charge, cancel)
	if !ok {
		return nil, net.ErrClosed
	}
	var buf *Buffer
	if h.Key == KeyProduce {
		buf = r.cfg.Pool.Get(min(size, trustedBytes))
	} else {
		buf = &Buffer{B: make([]byte, 0, min(size, trustedBytes))}
		buf.refs.Store(1)
	}
	buf.budget, buf.charged = lane, taken
	if _, err := r.src.Discard(lengthBytes); err != nil {
		buf.Release()
		return nil, err
	}
	if err := r.fill(buf, size); err != nil {
		buf.Release()
		return nil, err
	}
	return buf, nil
}

// fill reads size bytes into buf, growing it only as they arrive.
func (r *Reader) fill(buf *Buffer, size int) error {
	for len(buf.B) < size {
		if len(buf.B) == cap(buf.B) {
			buf.grow(min(size, 4*cap(buf.B)))
		}
		from := len(buf.B)
		to := min(size, cap(buf.B), from+pieceBytes)
		n, err := r.piece(buf.B[from:to], buf.budget)
		buf.B = buf.B[:from+n]
		if err != nil {
			return cutShort(err, from+n, size)
		}
	}
	return nil
}

// piece reads all of p, within the stall timeout. It gives up earlier on a client that is too slow while others wait for
// the memory that it occupies.
func (r *Reader) piece(p []byte, lane *Budget) (got int, err error) {
	if r.src.Buffered() >= len(p) {
		return io.ReadFull(r.src, p)
	}
	window := min(contendedWindow, r.cfg.StallTimeout)
	begin := time.Now()
	for deadline := begin.Add(r.cfg.StallTimeout); ; begin = time.Now() {
		r.expect(min(window, deadline.Sub(begin)))
		n, err := io.ReadFull(r.src, p[got:])
		got += n
		switch now := time.Now(); {
		case !errors.Is(err, os.ErrDeadlineExceeded), !now.Before(deadline):
			return got, err
		case now.Sub(begin) < window/2: // not by our deadline: somebody has ended the reading
			return got, err
		case n < contendedBytes && lane.Contended():
			return got, fmt.Errorf("%d bytes in %v while others wait for memory: %w", n, window, err)
		}
	}
}

// cutShort tells a frame that never ended from a connection that failed.
func cutShort(err error, got, want int) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the client stalled after %d of %d bytes of a frame: %w", got, want, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the connection ended after %d of %d bytes of a frame", ErrMalformed, got, want)
	}
	return err
}
