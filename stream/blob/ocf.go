package blob

import (
	"encoding/binary"
)

// An Avro object container file is a header, then blocks: row count, size, compressed rows, sync marker. The header
// names schema, codec and marker, so whoever knows the marker and the codec can go on with another block, and blocks
// staged by several owners make one file.

var avroMagic = [4]byte{'O', 'b', 'j', 1}

// appendHeader appends the header of a file.
func appendHeader(dst []byte, schema string, codec Codec, sync [16]byte) []byte {
	dst = append(dst, avroMagic[:]...)
	dst = binary.AppendVarint(dst, 2)
	dst = appendAvroBytes(dst, "avro.schema")
	dst = appendAvroBytes(dst, schema)
	dst = appendAvroBytes(dst, "avro.codec")
	dst = appendAvroBytes(dst, codec.String())
	dst = binary.AppendVarint(dst, 0)
	return append(dst, sync[:]...)
}

func appendAvroBytes(dst []byte, s string) []byte {
	dst = binary.AppendVarint(dst, int64(len(s)))
	return append(dst, s...)
}

// appendBlock appends one block of rows records, compressed already.
func appendBlock(dst []byte, rows int64, compressed []byte, sync [16]byte) []byte {
	dst = binary.AppendVarint(dst, rows)
	dst = binary.AppendVarint(dst, int64(len(compressed)))
	dst = append(dst, compressed...)
	return append(dst, sync[:]...)
}

// maxRowsPerBlock bounds a block of rows that take no bytes, which readers refuse beyond their own limits.
const maxRowsPerBlock = 4000
