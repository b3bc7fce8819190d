package blob

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
)

// Limits of Azure block blobs that every Store keeps.
const (
	MaxBlocksPerBlob         = 50_000  // in one block list
	MaxUncommittedBlocks     = 100_000 // staged under one name
	MaxBlockIDBytes          = 64      // before base64
	MaxMetadataBytes         = 8 << 10 // names and values together
	MaxNameBytes             = 1024
	blockIndexBytes          = 4
	nonceBytes               = 16
	blockIDBytes             = nonceBytes + blockIndexBytes
	maxForeignUncommitted    = 10_000 // more under a new name: it gets a suffix
	commitKey                = "strandline_commit"
	rowsKey, rawBytesKey     = "numberOfRecords", "rawSizeBytes"
	streamKey, schemaHashKey = "streamName", "strandline_schema"
)

// Nonce is the random part of block ids: fresh for every blob and at every restore, so that a zombie and its successor
// never stage different bytes under one id.
type Nonce [nonceBytes]byte

// BlockID names one staged block of a blob. Its width never changes, because Azure refuses ids of different lengths
// under one name.
type BlockID [blockIDBytes]byte

// NewBlockID is nonce followed by index, big-endian.
func NewBlockID(nonce Nonce, index uint32) BlockID {
	var id BlockID
	copy(id[:], nonce[:])
	binary.BigEndian.PutUint32(id[nonceBytes:], index)
	return id
}

func (id BlockID) String() string { return hex.EncodeToString(id[:]) }

// Store keeps block blobs. Names are slash-separated and relative to the store's own container and prefix. Every call
// ends when its context does; calls may overlap. Errors are *StoreError, to be asked with errors.Is against the Err…
// values; an error whose request may have reached the service (a lost reply) is ErrTemporary, and says nothing about
// the outcome.
type Store interface {
	// Ensure makes the container or folder if it is missing and may be made.
	Ensure(ctx context.Context) error
	// Stage makes data durable and invisible as block id of name. The blocks of a name are shared by all who write it;
	// an equal id is overwritten. data is not kept after the return. ErrBlockCount: the name holds too many.
	Stage(ctx context.Context, name string, id BlockID, data []byte) error
	// Commit makes the staged blocks, in this order, the content of name, and drops the name's other blocks. It never
	// replaces: ErrExists if name is there. ErrBlockList: a block is not staged (any more). A store that cannot keep
	// metadata leaves it out and returns a checksum in Props.
	Commit(ctx context.Context, name string, blocks []BlockID, metadata map[string]string) error
	// Props describes a visible blob, which is durable when Props returns; ErrNotFound if there is none.
	Props(ctx context.Context, name string) (Props, error)
	// Read opens a visible blob; ErrNotFound if there is none. ctx ends the reading too.
	Read(ctx context.Context, name string) (io.ReadCloser, error)
	// List calls visit for the visible blobs whose names start with prefix, in name order, until it returns an error,
	// which List then returns.
	List(ctx context.Context, prefix string, visit func(Entry) error) error
	// Delete removes a visible blob; ErrNotFound if there is none.
	Delete(ctx context.Context, name string) error
	// Uncommitted lists the ids of the staged blocks of name, ours and others', in no order: 20 bytes for a BlockID, any
	// other length for other programs'. None is no error.
	Uncommitted(ctx context.Context, name string) ([]string, error)
	// String says where the store is, without secrets.
	String() string
}

// Props describes a visible blob.
type Props struct {
	SizeBytes int64
	// Metadata's names are lower case: services do not keep the case.
	Metadata map[string]string
	// HasChecksum: Checksum is the CRC-32C of the content. Stores that keep metadata may leave it out.
	HasChecksum bool
	Checksum    uint32
}

// Entry is one blob of a listing.
type Entry struct {
	Name      string
	SizeBytes int64
}
