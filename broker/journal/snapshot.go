package journal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"path"
	"slices"

	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/vfs"
)

const (
	snapshotMagic       = "SLJSNP\n\x01"
	snapshotHeaderBytes = 64
	snapshotPieceBytes  = 1 << 20
	keepSnapshots       = 2
)

// snapshot is what the header of a snapshot file says.
type snapshot struct {
	secret      secret
	seq         uint64
	incarnation uint32
	stateCRC    uint32
	stateBytes  int64
}

func (s snapshot) encode() []byte {
	b := make([]byte, snapshotHeaderBytes)
	copy(b, snapshotMagic)
	le.PutUint32(b[12:], s.incarnation)
	copy(b[16:32], s.secret[:])
	le.PutUint64(b[32:], s.seq)
	le.PutUint64(b[40:], uint64(s.stateBytes))
	le.PutUint32(b[48:], s.stateCRC)
	le.PutUint32(b[8:], plainCRC(b))
	return b
}

// parseSnapshot reads a header of snapshotHeaderBytes.
func parseSnapshot(b []byte, seq uint64) (s snapshot, ok bool, err error) {
	const version = len(snapshotMagic) - 1
	if string(b[:version]) != snapshotMagic[:version] || le.Uint32(b[8:]) != plainCRC(b) {
		return s, false, nil
	}
	if b[version] != snapshotMagic[version] {
		return s, false, fmt.Errorf("snapshot format %d is not known here (only %d): it was written by another version "+
			"of this program", b[version], snapshotMagic[version])
	}
	s = snapshot{
		incarnation: le.Uint32(b[12:]), secret: secret(b[16:32]), seq: le.Uint64(b[32:]),
		stateBytes: int64(le.Uint64(b[40:])), stateCRC: le.Uint32(b[48:]),
	}
	return s, s.seq == seq && s.seq > 0 && s.stateBytes >= 0 && s.stateBytes <= math.MaxInt64-snapshotHeaderBytes, nil
}

// writeSnapshot stores a snapshot whole or not at all, and then removes those before the one before it.
func writeSnapshot(disk vfs.FS, dir string, s snapshot, state []byte) error {
	name := snapshotName(s.seq)
	temp := path.Join(dir, name+tempSuffix)
	s.stateBytes, s.stateCRC = int64(len(state)), crc32.Checksum(state, castagnoli)
	if err := writeTemp(disk, temp, s, state); err != nil {
		return errors.Join(err, removeIfThere(disk, temp))
	}
	failpoint.Hit("snapshot.written")
	if err := disk.Rename(temp, path.Join(dir, name)); err != nil {
		return errors.Join(err, removeIfThere(disk, temp))
	}
	failpoint.Hit("snapshot.renamed")
	if err := disk.SyncDir(dir); err != nil {
		return err
	}
	failpoint.Hit("snapshot.done")
	// The new one counts from here on: what cannot be tidied up now will be next time.
	names, _ := disk.List(dir)
	for i, seq := range snapshotSeqs(names) {
		if i >= keepSnapshots {
			_ = disk.Remove(path.Join(dir, snapshotName(seq)))
		}
	}
	return nil
}

func writeTemp(disk vfs.FS, temp string, s snapshot, state []byte) (err error) {
	if err := removeIfThere(disk, temp); err != nil {
		return err
	}
	f, err := disk.Create(temp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.WriteVecAt([][]byte{s.encode()}, 0); err != nil {
		return err
	}
	pos := int64(snapshotHeaderBytes)
	for piece := range slices.Chunk(state, snapshotPieceBytes) {
		if err := f.WriteVecAt([][]byte{piece}, pos); err != nil {
			return err
		}
		pos += int64(len(piece))
		failpoint.Hit("snapshot.half")
	}
	return f.Sync()
}

// snapshotSeqs returns the sequences of the snapshots among names, newest first.
func snapshotSeqs(names []string) []uint64 {
	var seqs []uint64
	for _, name := range names {
		if seq, ok := parseSnapshotName(name); ok {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	slices.Reverse(seqs)
	return seqs
}

// snapshotFault is why a snapshot cannot be used. Both kinds are stepped over if the journal still holds everything
// after the snapshot before it, and refused otherwise.
type snapshotFault string

const (
	snapshotShort   snapshotFault = "it is cut short"
	snapshotDamaged snapshotFault = "its contents are not what was written"
)

// readSnapshot reads and checks the snapshot at seq. It allocates no more than the file holds.
func readSnapshot(disk vfs.FS, dir string, seq uint64) (s snapshot, state []byte, fault snapshotFault, err error) {
	f, err := disk.Open(path.Join(dir, snapshotName(seq)))
	if err != nil {
		return s, nil, "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return s, nil, "", err
	}
	header, err := readBlock(f, 0, snapshotHeaderBytes)
	if err != nil {
		return s, nil, "", err
	}
	if len(header) < snapshotHeaderBytes {
		return s, nil, snapshotShort, nil
	}
	s, ok, err := parseSnapshot(header, seq)
	switch {
	case err != nil:
		return s, nil, "", err
	case !ok || size > snapshotHeaderBytes+s.stateBytes:
		return s, nil, snapshotDamaged, nil
	case size < snapshotHeaderBytes+s.stateBytes:
		return s, nil, snapshotShort, nil
	}
	state, err = readBlock(f, snapshotHeaderBytes, int(s.stateBytes))
	if err != nil {
		return s, nil, "", err
	}
	if crc32.Checksum(state, castagnoli) != s.stateCRC {
		return s, nil, snapshotDamaged, nil
	}
	return s, state, "", nil
}

func removeIfThere(disk vfs.FS, name string) error {
	err := disk.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
