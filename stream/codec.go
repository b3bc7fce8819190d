package stream

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Codec turns values of one type into bytes and back. Null never reaches it. It must be safe for use by many tasks at
// once.
type Codec[T any] interface {
	// Append appends the encoding of v to dst.
	Append(dst []byte, v T) ([]byte, error)
	// Decode must not keep b.
	Decode(b []byte) (T, error)
}

// Codecs are the codecs of a stream's keys and values.
type Codecs[K, V any] struct {
	Key   Codec[K]
	Value Codec[V]
}

// String is the UTF-8 codec. Decoding refuses bytes that are no UTF-8.
var String Codec[string] = stringCodec{}

// Bytes is the identity. Decoding copies.
var Bytes Codec[[]byte] = bytesCodec{}

// Int64 is eight bytes, big-endian, as Kafka's LongSerializer writes.
var Int64 Codec[int64] = int64Codec{}

// NoKey is the codec of streams without keys: the key is written as zero bytes.
var NoKey Codec[None] = noneCodec{}

// JSON is encoding/json. Unknown fields are ignored and trailing bytes refused.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

type stringCodec struct{}

func (stringCodec) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }

func (stringCodec) Decode(b []byte) (string, error) {
	if !utf8.Valid(b) {
		return "", fmt.Errorf("not UTF-8: %.40q", b)
	}
	return string(b), nil
}

type bytesCodec struct{}

func (bytesCodec) Append(dst []byte, v []byte) ([]byte, error) { return append(dst, v...), nil }
func (bytesCodec) Decode(b []byte) ([]byte, error)             { return append([]byte{}, b...), nil }

type int64Codec struct{}

func (int64Codec) Append(dst []byte, v int64) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, uint64(v)), nil
}

func (int64Codec) Decode(b []byte) (int64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("an int64 has 8 bytes, got %d", len(b))
	}
	return int64(binary.BigEndian.Uint64(b)), nil
}

type noneCodec struct{}

func (noneCodec) Append(dst []byte, _ None) ([]byte, error) { return dst, nil }
func (noneCodec) Decode([]byte) (None, error)               { return None{}, nil }

type jsonCodec[T any] struct{}

func (jsonCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return dst, err
	}
	return append(dst, b...), nil
}

func (jsonCodec[T]) Decode(b []byte) (T, error) {
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("no JSON of %T: %w", v, err)
	}
	return v, nil
}
