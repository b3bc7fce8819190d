// Package compress knows the codecs of Kafka's record batches in their framings: gzip, snappy in xerial's blocks, the
// lz4 frame and zstd. Decoding has a hard bound, since a few bytes may claim or become any amount.
package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codecs as in the lowest three bits of a record batch's attributes.
const (
	None   int8 = 0
	Gzip   int8 = 1
	Snappy int8 = 2
	LZ4    int8 = 3
	Zstd   int8 = 4
)

var (
	// ErrTooLarge says that the content is larger than the caller allows.
	ErrTooLarge = errors.New("decompressed content exceeds the bound")
	// ErrMalformed says that the bytes are not what the codec makes.
	ErrMalformed = errors.New("malformed compressed content")
	// ErrUnknownCodec says that there is no such codec.
	ErrUnknownCodec = errors.New("unknown compression codec")
)

const (
	// firstGuess is how many times its compressed size content is expected to have, at first.
	firstGuess = 4
	// snappyRatio is more than snappy can reach: three bytes copy 64.
	snappyRatio = 32
	// minGrowBytes is the least room that decoding asks for.
	minGrowBytes = 512
	// maxWindowBytes bounds how far back a zstd frame may reach: that of level 22.
	maxWindowBytes = 128 << 20
	// zstdSlackBytes is room beyond the content for one block, so that a block that does not fit is one too many.
	zstdSlackBytes = zstdBlockMost + 64
	// zstdBlockLeast bytes may become zstdBlockMost and no more.
	zstdBlockLeast, zstdBlockMost = 4, 128 << 10
	// believedRatio is up to which ratio a size that a zstd frame claims gets room at once.
	believedRatio = 64
)

// Decode appends the content of src, compressed with codec, to dst and returns it. At most maxBytes are appended,
// else the error wraps ErrTooLarge; memory is allocated for what src holds, not
// for what it claims. Other
// errors wrap ErrMalformed or ErrUnknownCodec; dst's content is then as it was. Codec None copies. Calls may overlap.
func Decode(codec int8, src, dst []byte, maxBytes int) ([]byte, error) {
	out := dst
	var err error
	switch codec {
	case None:
		if len(src) > maxBytes {
			err = ErrTooLarge
		} else {
			out = append(dst, src...)
		}
	case Gzip:
		out, err = decodeGzip(src, dst, maxBytes)
	case Snappy:
		out, err = decodeSnappy(src, dst, maxBytes)
	case LZ4:
		out, err = decodeLZ4(src, dst, maxBytes)
	case Zstd:
		out, err = decodeZstd(src, dst, maxBytes)
	default:
		return dst, fmt.Errorf("codec %d: %w", codec, ErrUnknownCodec)
	}
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, ErrTooLarge):
		return dst, fmt.Errorf("codec %d, %d bytes, bound %d: %w", codec, len(src), maxBytes, ErrTooLarge)
	}
	return dst, fmt.Errorf("codec %d, %d bytes: %w: %w", codec, len(src), ErrMalformed, err)
}

// Encode appends src, compressed with codec at the codec's usual level, to dst and returns it. Snappy gets xerial's
// framing, as Java clients write it. The error is ErrUnknownCodec. Calls may overlap.
func Encode(codec int8, src, dst []byte) ([]byte, error) {
	switch codec {
	case None:
		return append(dst, src...), nil
	case Gzip:
		w := gzipWriters.Get().(*gzip.Writer)
		defer gzipWriters.Put(w)
		return encodeStream(w, src, dst)
	case Snappy:
		return encodeSnappy(src, dst), nil
	case LZ4:
		w := lz4Writers.Get().(*lz4.Writer)
		defer lz4Writers.Put(w)
		return encodeStream(w, src, dst)
	case Zstd:
		w := zstdWriters.Get().(*zstd.Encoder)
		defer zstdWriters.Put(w)
		return w.EncodeAll(src, dst), nil
	}
	return dst, fmt.Errorf("codec %d: %w", codec, ErrUnknownCodec)
}

// The states of the codecs are large and are kept between calls.
var (
	gzipReaders = sync.Pool{New: func() any { return new(gzipReader) }}
	lz4Readers  = sync.Pool{New: func() any { return &lz4Reader{inner: lz4.NewReader(nil)} }}
	gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}
	lz4Writers  = sync.Pool{New: func() any { return lz4.NewWriter(nil) }}
	zstdReaders = sync.Pool{New: func() any {
		r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindowBytes), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			panic("BUG: zstd decoder options: " + err.Error())
		}
		return r
	}}
	zstdWriters = sync.Pool{New: func() any {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithZeroFrames(true))
		if err != nil {
			panic("BUG: zstd encoder options: " + err.Error())
		}
		return w
	}}
)

type gzipReader struct {
	inner gzip.Reader
	src   bytes.Reader
}

type lz4Reader struct {
	inner *lz4.Reader
	src   bytes.Reader
}

func decodeGzip(src, dst []byte, maxBytes int) ([]byte, error) {
	r := gzipReaders.Get().(*gzipReader)
	defer gzipReaders.Put(r)
	r.src.Reset(src)
	defer r.src.Reset(nil)
	if err := r.inner.Reset(&r.src); err != nil {
		return dst, err
	}
	return readAll(&r.inner, len(src), dst, maxBytes)
}

func decodeLZ4(src, dst []byte, maxBytes int) ([]byte, error) {
	r := lz4Readers.Get().(*lz4Reader)
	defer lz4Readers.Put(r)
	r.src.Reset(src)
	defer r.src.Reset(nil)
	r.inner.Reset(&r.src)
	return readAll(r.inner, len(src), dst, maxBytes)
}

// readAll appends what r gives, growing dst as it comes.
func readAll(r io.Reader, srcBytes int, dst []byte, maxBytes int) ([]byte, error) {
	start := len(dst)
	dst = slices.Grow(dst, min(srcBytes*firstGuess, maxBytes)+minGrowBytes)
	for {
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst)-start > maxBytes:
			return dst, ErrTooLarge
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, err
		case len(dst) == cap(dst):
			dst = slices.Grow(dst, max(len(dst)-start, minGrowBytes))
		}
	}
}

// decodeZstd gives the decoder room for what is believed and more when that was not enough. The decoder works in the
// content's own memory, so the window that a frame claims costs nothing. It says in many ways that its room is short,
// so a failure near the end of its room is tried again with more, up to what src could become at most.
func decodeZstd(src, dst []byte, maxBytes int) ([]byte, error) {
	room := len(src) * firstGuess
	var head zstd.Header
	if head.Decode(src) == nil && head.HasFCS {
		if head.FrameContentSize > uint64(maxBytes) {
			return dst, ErrTooLarge
		}
		if claimed := int(head.FrameContentSize); claimed/believedRatio <= len(src) {
			room = claimed
		}
	}
	r := zstdReaders.Get().(*zstd.Decoder)
	defer zstdReaders.Put(r)
	start, most := len(dst), min(maxBytes, (len(src)/zstdBlockLeast+1)*zstdBlockMost)+zstdSlackBytes
	for {
		room = min(max(room, minGrowBytes), most)
		dst = slices.Grow(dst, room)
		room = min(cap(dst)-start, most)
		out, err := r.DecodeAll(src, dst[start:start:start+room])
		switch {
		case err == nil && len(out) <= maxBytes:
			return dst[:start+len(out)], nil
		case err == nil || len(out) > maxBytes:
			return dst, ErrTooLarge
		case errors.Is(err, zstd.ErrDecoderSizeExceeded):
			if room == most {
				return dst, ErrTooLarge
			}
		case room == most || room-len(out) > zstdSlackBytes:
			return dst, err
		}
		room *= 2
	}
}

var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const (
	xerialHeaderSize = 16 // magic, version, least compatible version
	xerialBlockBytes = 32 << 10
)

var errShort = errors.New("content ends early")

// decodeSnappy accepts xerial's blocks and a raw snappy block, which some clients write.
func decodeSnappy(src, dst []byte, maxBytes int) ([]byte, error) {
	start := len(dst)
	if !bytes.HasPrefix(src, xerialMagic) {
		return appendSnappyBlock(src, dst, maxBytes)
	}
	if len(src) < xerialHeaderSize {
		return dst, errShort
	}
	for rest := src[xerialHeaderSize:]; len(rest) > 0; {
		if len(rest) < 4 {
			return dst, errShort
		}
		size := int64(binary.BigEndian.Uint32(rest))
		if rest = rest[4:]; size > int64(len(rest)) {
			return dst, errShort
		}
		var err error
		if dst, err = appendSnappyBlock(rest[:size], dst, maxBytes-(len(dst)-start)); err != nil {
			return dst, err
		}
		rest = rest[size:]
	}
	return dst, nil
}

func appendSnappyBlock(src, dst []byte, maxBytes int) ([]byte, error) {
	size, err := s2.DecodedLen(src)
	switch {
	case err != nil:
		return dst, err
	case size > maxBytes:
		return dst, ErrTooLarge
	case size/snappyRatio > len(src):
		return dst, fmt.Errorf("%d bytes cannot hold %d", len(src), size)
	}
	dst = slices.Grow(dst, size)
	if _, err := s2.Decode(dst[len(dst):len(dst)+size], src); err != nil {
		return dst, err
	}
	return dst[:len(dst)+size], nil
}

func encodeSnappy(src, dst []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = append(dst, 0, 0, 0, 1, 0, 0, 0, 1)
	for len(src) > 0 {
		n := min(len(src), xerialBlockBytes)
		dst = slices.Grow(dst, 4+s2.MaxEncodedLen(n))
		at := len(dst)
		block := s2.EncodeSnappy(dst[at+4:cap(dst)], src[:n])
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(block)))
		dst = dst[:at+4+len(block)]
		src = src[n:]
	}
	return dst
}

// streamWriter is what gzip and lz4 have in common.
type streamWriter interface {
	io.WriteCloser
	Reset(io.Writer)
}

func encodeStream(w streamWriter, src, dst []byte) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	w.Reset(out)
	_, err := w.Write(src)
	if err = errors.Join(err, w.Close()); err != nil {
		return dst, fmt.Errorf("compress %d bytes: %w", len(src), err)
	}
	return out.Bytes(), nil
}
