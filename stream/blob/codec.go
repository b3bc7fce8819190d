package blob

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// Codec compresses the blocks of an Avro file. The numbers are part of the token format.
type Codec byte

const (
	Null      Codec = 1
	Deflate   Codec = 2
	Snappy    Codec = 3
	Zstandard Codec = 4
)

func (c Codec) known() bool { return c >= Null && c <= Zstandard }

// String is the name that an Avro header gives the codec.
func (c Codec) String() string {
	switch c {
	case Null:
		return "null"
	case Deflate:
		return "deflate"
	case Snappy:
		return "snappy"
	case Zstandard:
		return "zstandard"
	}
	return fmt.Sprintf("codec(%d)", byte(c))
}

// compressor compresses one block at a time and keeps its memory between blocks.
type compressor struct {
	codec Codec
	out   []byte
	buf   bytes.Buffer
	flate *flate.Writer
	zstd  *zstd.Encoder
}

// compress returns src compressed. The result is valid until the next call, or as long as src.
func (c *compressor) compress(src []byte) ([]byte, error) {
	switch c.codec {
	case Null:
		return src, nil
	case Deflate:
		return c.deflate(src)
	case Snappy:
		if n := s2.MaxEncodedLen(len(src)) + 4; cap(c.out) < n {
			c.out = make([]byte, n)
		}
		c.out = s2.EncodeSnappy(c.out[:cap(c.out)], src)
		c.out = binary.BigEndian.AppendUint32(c.out, crc32.ChecksumIEEE(src))
		return c.out, nil
	case Zstandard:
		if c.zstd == nil {
			e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
			if err != nil {
				return nil, err
			}
			c.zstd = e
		}
		c.out = c.zstd.EncodeAll(src, c.out[:0])
		return c.out, nil
	}
	panic(fmt.Sprintf("BUG: compressing with %v", c.codec))
}

func (c *compressor) deflate(src []byte) ([]byte, error) {
	c.buf.Reset()
	if c.flate == nil {
		w, err := flate.NewWriter(&c.buf, flate.DefaultCompression)
		if err != nil {
			return nil, err
		}
		c.flate = w
	} else {
		c.flate.Reset(&c.buf)
	}
	if _, err := c.flate.Write(src); err != nil {
		return nil, err
	}
	if err := c.flate.Close(); err != nil {
		return nil, err
	}
	return c.buf.Bytes(), nil
}
