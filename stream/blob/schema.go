package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/twmb/avro"
)

// Fingerprint identifies a schema by the text that a file's header carries: the first 16 bytes of its SHA-256. Unlike
// Avro's own fingerprint it tells logical types apart, which the reader of a file sees.
type Fingerprint [16]byte

func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Schema is the Avro schema of a file. Calls may overlap.
type Schema struct {
	avro        *avro.Schema
	text        string
	fingerprint Fingerprint
}

// ParseSchema reads a schema's JSON text, which files then carry as it is.
func ParseSchema(text string) (*Schema, error) {
	s, err := avro.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parse an Avro schema: %w", err)
	}
	return newSchema(s)
}

// SchemaOf derives a schema from the Go struct T: fields are named by their `avro` tag or their Go name, int and int64
// become long, pointers nullable, time.Time timestamp-millis. T's name is the record's name.
func SchemaOf[T any]() (*Schema, error) {
	s, err := avro.SchemaFor[T]()
	if err != nil {
		return nil, fmt.Errorf("derive an Avro schema of %T: %w", *new(T), err)
	}
	return newSchema(s)
}

// maxSchemaBytes is what the readers that we know accept in a header.
const maxSchemaBytes = 1 << 20

func newSchema(s *avro.Schema) (*Schema, error) {
	text := s.String()
	if len(text) > maxSchemaBytes {
		return nil, fmt.Errorf("an Avro schema has %d bytes of text, at most %d are allowed", len(text), maxSchemaBytes)
	}
	sum := sha256.Sum256([]byte(text))
	return &Schema{avro: s, text: text, fingerprint: Fingerprint(sum[:16])}, nil
}

// String is the schema's JSON text.
func (s *Schema) String() string { return s.text }

// Fingerprint identifies s.
func (s *Schema) Fingerprint() Fingerprint { return s.fingerprint }

// Record is a value with its own schema: a struct, a map[string]any, or whatever Avro can encode.
type Record struct {
	Schema *Schema
	Value  any
}

// Encoded is a record that is already Avro binary. It is checked against the schema before it is written. A nil Schema
// stands for the sink's.
type Encoded struct {
	Schema *Schema
	Data   []byte
}

// encodeRecord appends value as one Avro record to dst and returns the schema that it has; fallback is the sink's, or
// nil. On an error dst is unchanged.
func encodeRecord(dst []byte, value any, fallback *Schema) ([]byte, *Schema, error) {
	schema := fallback
	switch v := value.(type) {
	case Encoded:
		if v.Schema != nil {
			schema = v.Schema
		}
		if err := checkEncoded(v.Data, schema); err != nil {
			return dst, nil, err
		}
		return append(dst, v.Data...), schema, nil
	case Record:
		schema, value = v.Schema, v.Value
	}
	if schema == nil {
		return dst, nil, &RecordError{Reason: fmt.Sprintf("a %T brings no schema and the sink has none: use WithType, "+
			"WithSchema or Record", value)}
	}
	out, err := schema.avro.AppendEncode(dst, value)
	if err != nil {
		return dst, nil, &RecordError{Reason: fmt.Sprintf("a %T does not fit the schema", value), Err: err}
	}
	if n := len(out) - len(dst); n > maxRecordBytes {
		return dst, nil, &RecordError{Reason: fmt.Sprintf("it has %d bytes, at most %d are allowed", n, maxRecordBytes)}
	}
	return out, schema, nil
}

// checkEncoded refuses bytes that are not exactly one record of schema: one such record would make the whole file
// unreadable.
func checkEncoded(data []byte, schema *Schema) error {
	if schema == nil {
		return &RecordError{Reason: "encoded bytes bring no schema and the sink has none"}
	}
	if len(data) > maxRecordBytes {
		return &RecordError{Reason: fmt.Sprintf("it has %d bytes, at most %d are allowed", len(data), maxRecordBytes)}
	}
	var v any
	rest, err := schema.avro.Decode(data, &v)
	if err != nil {
		return &RecordError{Reason: "the encoded bytes do not match their schema", Err: err}
	}
	if len(rest) != 0 {
		return &RecordError{Reason: fmt.Sprintf("%d of %d encoded bytes are left over after one record", len(rest), len(data))}
	}
	return nil
}
