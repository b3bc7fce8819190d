package blob

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Bounds of the token format.
const (
	tokenVersion   = 1
	maxTokenBytes  = 1 << 20
	maxTokenString = 512
	maxTokenBlobs  = 10_000
)

var tokenMagic = [3]byte{'S', 'B', 'T'}

// Token is what Prepare returns, decoded: all that the next owner of a task needs. docs/formats/blob-token.md is its
// byte format.
type Token struct {
	Job, Run, Sink, Task string
	Epoch                int64  // of the Prepare; for people, nothing depends on it
	Blobs                []Blob // done ones, then open ones from the least to the most recently written
}

// Blob is a blob in a token. What is counted is what its runs hold.
type Blob struct {
	Name     string
	Done     bool
	Codec    Codec
	Schema   Fingerprint
	Sync     [16]byte
	Rows     int64
	Bytes    int64  // as staged
	RawBytes int64  // of the rows before compression
	Checksum uint32 // CRC-32C of the staged bytes in order
	OpenedMs int64  // wall clock at the first row, 0 if not known yet
	Runs     []Run
}

// Run is a sequence of blocks of one owner: indexes First to First+Count-1.
type Run struct {
	Nonce Nonce
	First uint32
	Count uint32
}

// Blocks is how many blocks b has.
func (b *Blob) Blocks() int {
	n := 0
	for _, r := range b.Runs {
		n += int(r.Count)
	}
	return n
}

// BlockIDs lists b's blocks in order.
func (b *Blob) BlockIDs() []BlockID {
	ids := make([]BlockID, 0, b.Blocks())
	for _, r := range b.Runs {
		for i := range r.Count {
			ids = append(ids, NewBlockID(r.Nonce, r.First+i))
		}
	}
	return ids
}

// AppendTo appends t's bytes to dst.
func (t *Token) AppendTo(dst []byte) []byte {
	dst = append(dst, tokenMagic[:]...)
	dst = append(dst, tokenVersion)
	for _, s := range []string{t.Job, t.Run, t.Sink, t.Task} {
		dst = appendString(dst, s)
	}
	dst = binary.AppendVarint(dst, t.Epoch)
	dst = binary.AppendUvarint(dst, uint64(len(t.Blobs)))
	for i := range t.Blobs {
		dst = t.Blobs[i].appendTo(dst)
	}
	return dst
}

func (b *Blob) appendTo(dst []byte) []byte {
	state := byte(0)
	if b.Done {
		state = 1
	}
	dst = append(dst, state, byte(b.Codec))
	dst = appendString(dst, b.Name)
	dst = append(dst, b.Schema[:]...)
	dst = append(dst, b.Sync[:]...)
	dst = binary.AppendUvarint(dst, uint64(b.Rows))
	dst = binary.AppendUvarint(dst, uint64(b.Bytes))
	dst = binary.AppendUvarint(dst, uint64(b.RawBytes))
	dst = binary.BigEndian.AppendUint32(dst, b.Checksum)
	dst = binary.AppendVarint(dst, b.OpenedMs)
	dst = binary.AppendUvarint(dst, uint64(len(b.Runs)))
	for _, r := range b.Runs {
		dst = append(dst, r.Nonce[:]...)
		dst = binary.AppendUvarint(dst, uint64(r.First))
		dst = binary.AppendUvarint(dst, uint64(r.Count))
	}
	return dst
}

func appendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// ParseToken decodes what AppendTo wrote. It accepts any bytes and returns a *TokenError for what is no token; it
// allocates no more than a small multiple of them.
func ParseToken(data []byte) (*Token, error) {
	if len(data) > maxTokenBytes {
		return nil, tokenError("%d bytes, at most %d are allowed", len(data), maxTokenBytes)
	}
	if len(data) < len(tokenMagic)+1 || [3]byte(data) != tokenMagic {
		return nil, tokenError("it does not start with %q: these are not a blob sink's bytes", tokenMagic)
	}
	if v := data[len(tokenMagic)]; v != tokenVersion {
		return nil, tokenError("version %d, this program knows %d: a newer program wrote it, run that one", v, tokenVersion)
	}
	r := &tokenReader{rest: data[len(tokenMagic)+1:]}
	t := &Token{Job: r.string("job"), Run: r.string("run"), Sink: r.string("sink"), Task: r.string("task")}
	t.Epoch = r.varint("epoch")
	n := r.count("number of blobs", maxTokenBlobs)
	for range n {
		if r.err != nil {
			break
		}
		t.Blobs = append(t.Blobs, r.blob())
	}
	if r.err == nil && len(r.rest) > 0 {
		return nil, tokenError("%d bytes are left over", len(r.rest))
	}
	if r.err != nil {
		return nil, r.err
	}
	return t, nil
}

func tokenError(format string, args ...any) error {
	return &TokenError{Reason: fmt.Sprintf(format, args...)}
}

// tokenReader reads fields until the first error, after which it returns zeros.
type tokenReader struct {
	rest []byte
	err  error
}

func (r *tokenReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = tokenError(format, args...)
	}
	r.rest = nil
}

func (r *tokenReader) bytes(n int, what string) []byte {
	if n > len(r.rest) {
		r.fail("it ends inside %s", what)
		return make([]byte, min(n, 16))
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *tokenReader) count(what string, limit uint64) int64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail("it ends inside %s", what)
		return 0
	}
	if v > limit {
		r.fail("%s is %d, at most %d is possible", what, v, limit)
		return 0
	}
	r.rest = r.rest[n:]
	return int64(v)
}

func (r *tokenReader) varint(what string) int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.fail("it ends inside %s", what)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *tokenReader) string(what string) string {
	n := r.count("length of "+what, maxTokenString+MaxNameBytes)
	if int(n) > len(r.rest) {
		r.fail("it ends inside %s", what)
		return ""
	}
	return string(r.bytes(int(n), what))
}

func (r *tokenReader) blob() Blob {
	head := r.bytes(2, "a blob")
	b := Blob{Done: head[0] == 1, Codec: Codec(head[1])}
	if r.err == nil && (head[0] > 1 || !b.Codec.known()) {
		r.fail("a blob has state %d and codec %d", head[0], head[1])
	}
	b.Name = r.string("a blob's name")
	copy(b.Schema[:], r.bytes(len(b.Schema), "a fingerprint"))
	copy(b.Sync[:], r.bytes(len(b.Sync), "a sync marker"))
	b.Rows = r.count("rows", math.MaxInt64)
	b.Bytes = r.count("bytes", math.MaxInt64)
	b.RawBytes = r.count("raw bytes", math.MaxInt64)
	b.Checksum = binary.BigEndian.Uint32(r.bytes(4, "a checksum"))
	b.OpenedMs = r.varint("a time")
	runs := r.count("number of runs", MaxBlocksPerBlob)
	blocks := int64(0)
	for range runs {
		if r.err != nil {
			return b
		}
		run := Run{Nonce: Nonce(r.bytes(nonceBytes, "a run"))}
		run.First = uint32(r.count("a block index", MaxUncommittedBlocks))
		run.Count = uint32(r.count("a block count", MaxBlocksPerBlob))
		if blocks += int64(run.Count); blocks > MaxBlocksPerBlob {
			r.fail("blob %s has more than %d blocks", b.Name, MaxBlocksPerBlob)
		}
		b.Runs = append(b.Runs, run)
	}
	if r.err == nil && (b.Name == "" || b.Rows == 0 || blocks == 0) {
		r.fail("blob %q has %d rows in %d blocks", b.Name, b.Rows, blocks)
	}
	return b
}
