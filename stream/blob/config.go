package blob

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/strandline-io/strandline/stream"
)

// Bounds and defaults of Config.
const (
	MaxCommitIDBytes = 256

	DefaultMaxBytes       = 256 << 20
	DefaultMaxBlocks      = 45_000
	DefaultMaxAge         = 10 * time.Minute
	MaxMaxAge             = 24 * time.Hour
	DefaultMaxOpen        = 8
	DefaultBlockBytes     = 4 << 20
	MaxBlockBytes         = 256 << 20
	DefaultAvroBlockBytes = 64 << 10
	DefaultUploads        = 4
	DefaultTokenBytes     = 64 << 10
	DefaultCallTimeout    = 30 * time.Second
	DefaultPrepareTimeout = 60 * time.Second
	DefaultTries          = 6
	maxRunsPerBlob        = 64
	maxRecordBytes        = 64 << 20
)

// Config says how a sink writes. The zero value works.
type Config struct {
	// Stream is the path under the store that this sink owns: slash-separated segments of letters, digits, '.', '_' and
	// '-'. Default: the sink's name.
	Stream string
	// Schema of values that bring none (see Record and Encoded). Optional.
	Schema *Schema
	// Codec of new blobs. Default Zstandard; Deflate is what every reader has.
	Codec Codec
	// Number gives the number in a new blob's name from its first record, for sources that have one: the offset. It must
	// be a function of the data and differ between the rows of a task. Default: SinkRecord.RowSequence.
	Number func(stream.SinkRecord) int64

	// A blob is done when another row would make it exceed MaxRows (0: no limit) or about MaxBytes, when it has
	// MaxBlocks blocks (at most 49,999), or MaxAge after its first row (at most MaxMaxAge).
	MaxRows   int64
	MaxBytes  int64
	MaxBlocks int
	MaxAge    time.Duration
	// MaxOpen is how many blobs of different schemas a task keeps open; one more ends the least recently written.
	MaxOpen int

	// BlockBytes is the size at which a block is staged in the background; a commit stages smaller ones.
	BlockBytes int
	// AvroBlockBytes is the uncompressed size at which an Avro block ends.
	AvroBlockBytes int
	// Uploads is how many blocks the sink stages at a time, over all its tasks. Memory is at most about BlockBytes for
	// each upload and for each open blob.
	Uploads int
	// TokenBytes is the largest token that Prepare returns.
	TokenBytes int

	// CallTimeout ends one try of one store call; Tries is how often a call that got no answer is made, with a pause
	// that doubles from 100 ms to 5 s. PrepareTimeout ends Prepare, and likewise Commit and Restore.
	CallTimeout    time.Duration
	PrepareTimeout time.Duration
	Tries          int

	// Runtime is what the sink runs on; nil is goroutines and the clock. Random fills nonces and sync markers; nil is
	// crypto/rand.
	Runtime Runtime
	Random  func(p []byte)
}

// Option changes a Config. Any func(*Config) is one.
type Option func(*Config)

// WithSchema sets the schema of values that bring none.
func WithSchema(s *Schema) Option { return func(c *Config) { c.Schema = s } }

// WithType derives the schema from the Go struct T; SchemaOf says how. It panics if T cannot be a schema, which is a
// mistake in the program.
func WithType[T any]() Option {
	s, err := SchemaOf[T]()
	if err != nil {
		panic(err)
	}
	return WithSchema(s)
}

// WithCodec sets the codec of new blobs.
func WithCodec(c Codec) Option { return func(cfg *Config) { cfg.Codec = c } }

// withDefaults fills what is zero.
func (c Config) withDefaults(name string) Config {
	if c.Stream == "" {
		c.Stream = name
	}
	if c.Codec == 0 {
		c.Codec = Zstandard
	}
	def(&c.MaxBytes, DefaultMaxBytes)
	def(&c.MaxBlocks, DefaultMaxBlocks)
	def(&c.MaxAge, DefaultMaxAge)
	def(&c.MaxOpen, DefaultMaxOpen)
	def(&c.BlockBytes, DefaultBlockBytes)
	def(&c.AvroBlockBytes, DefaultAvroBlockBytes)
	def(&c.Uploads, DefaultUploads)
	def(&c.TokenBytes, DefaultTokenBytes)
	def(&c.CallTimeout, DefaultCallTimeout)
	def(&c.PrepareTimeout, DefaultPrepareTimeout)
	def(&c.Tries, DefaultTries)
	if c.Runtime == nil {
		c.Runtime = goroutines{}
	}
	if c.Random == nil {
		c.Random = cryptoRandom
	}
	return c
}

func def[T int | int64 | time.Duration](p *T, value T) {
	if *p == 0 {
		*p = value
	}
}

// validate returns all that is wrong with c, whose defaults are filled.
func (c *Config) validate(name string) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("blob sink %q: "+format, append([]any{name}, args...)...))
	}
	between := func(field string, v, low, high int64) {
		if v < low || v > high {
			bad("%s is %d, must be %d to %d", field, v, low, high)
		}
	}
	if name == "" {
		bad("a sink needs a name")
	}
	if err := checkStream(c.Stream); err != nil {
		bad("%v", err)
	}
	if !c.Codec.known() {
		bad("Codec is %d: use Null, Deflate, Snappy or Zstandard", c.Codec)
	}
	between("MaxRows", c.MaxRows, 0, 1<<62)
	between("MaxBytes", c.MaxBytes, 1, 1<<40)
	between("MaxBlocks", int64(c.MaxBlocks), 2, MaxBlocksPerBlob-1)
	between("MaxAge (ms)", c.MaxAge.Milliseconds(), 1, MaxMaxAge.Milliseconds())
	between("MaxOpen", int64(c.MaxOpen), 1, 1000)
	between("BlockBytes", int64(c.BlockBytes), 1, MaxBlockBytes)
	between("AvroBlockBytes", int64(c.AvroBlockBytes), 1, MaxBlockBytes)
	between("Uploads", int64(c.Uploads), 1, 1000)
	between("TokenBytes", int64(c.TokenBytes), 1<<10, maxTokenBytes)
	between("CallTimeout (ms)", c.CallTimeout.Milliseconds(), 1, 1<<40)
	between("PrepareTimeout (ms)", c.PrepareTimeout.Milliseconds(), 1, 1<<40)
	between("Tries", int64(c.Tries), 1, 1000)
	return errors.Join(errs...)
}

// checkStream refuses a path that a blob name or a file name on any system could not hold.
func checkStream(path string) error {
	if len(path) > 512 {
		return fmt.Errorf("stream %q… has %d bytes, at most 512 are allowed", path[:40], len(path))
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || strings.Trim(segment, ".") == "" || strings.HasSuffix(segment, ".") {
			return fmt.Errorf("stream %q: a segment is empty or ends with a dot", path)
		}
		if segment[0] == '.' || segment[0] == '_' {
			return fmt.Errorf("stream %q: a segment starts with %q, which readers take for hidden", path, segment[0])
		}
		for _, r := range segment {
			if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r) {
				return fmt.Errorf("stream %q: %q is not a letter, a digit, '.', '_' or '-'", path, r)
			}
		}
	}
	return nil
}
