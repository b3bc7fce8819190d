package journal

import (
	"bytes"
	"hash/crc32"
	"testing"

	"github.com/strandline-io/strandline/internal/alloc"
	"github.com/strandline-io/strandline/internal/vfs"
)

const (
	partHeader = iota
	partPointer
	partSnapshot
	partUnit
	partFooter
	parts
)

const partSeed = 7

// FuzzParts reads any bytes as each part of the journal's files. Where part says so, the checksum is made right first,
// so that what lies behind it is reached. What is accepted is written again to the same bytes.
func FuzzParts(f *testing.F) {
	units, footer := sampleParts()
	f.Add(byte(partHeader), segmentHeader{incarnation: 1, number: partSeed, firstSeq: 9, durable: 8, prevCRC: 5}.encode())
	f.Add(byte(partPointer), footerPointer{pos: dataStart, size: 1, firstSeq: 1, lastSeq: 2, endPos: dataStart}.encode(partSeed))
	f.Add(byte(partSnapshot), append(snapshot{seq: partSeed, incarnation: 1, stateBytes: 5,
		stateCRC: crc32.Checksum([]byte("state"), castagnoli)}.encode(), "state"...))
	f.Add(byte(partUnit), units)
	f.Add(byte(partFooter), footer)
	f.Add(byte(partUnit|0x80), units)
	f.Add(byte(partFooter|0x80), append(bytes.Clone(footer), footer...))
	f.Fuzz(func(t *testing.T, part byte, data []byte) {
		right := part&0x80 != 0
		data = bytes.Clone(data)
		switch part & 0x7f % parts {
		case partHeader:
			fixBlock(data, headerBytes, 0, right)
			if h, ok, err := parseHeader(data, partSeed); ok && err == nil {
				unchanged(t, h.encode(), data[:60])
			}
		case partPointer:
			fixBlock(data, pointerBytes, partSeed, right)
			if p, ok := parsePointer(data, partSeed, 1<<40); ok {
				unchanged(t, p.encode(partSeed), data[:pointerBytes])
			}
		case partSnapshot:
			fixBlock(data, snapshotHeaderBytes, 0, right)
			fuzzSnapshot(t, data)
		case partUnit:
			fuzzUnit(t, data, right)
		case partFooter:
			fuzzFooter(t, data, right)
		}
	})
}

// sampleParts are a unit of two batches, and the footer of a segment that holds it.
func sampleParts() (unit, foot []byte) {
	tail := tail{seed: partSeed, pos: dataStart, nextSeq: 3, incarnation: 1}
	var g group
	var f footer
	batch := bytes.Repeat([]byte{1}, 80)
	le.PutUint32(batch[batchCRCAt:], 0)
	tail.encode(&g, &f, []Unit{{Meta: []byte("meta"), Batches: [][]byte{batch, batch}}}, 2)
	return bytes.Join(g.bufs, nil)[:unitHeadBytes+8+4+160], bytes.Join(f.chunks, nil)
}

// fixBlock makes the checksum of a fixed block right.
func fixBlock(data []byte, size int, seed uint32, right bool) {
	if right && len(data) >= size {
		le.PutUint32(data[8:], blockCRC(seed, data[:size]))
	}
}

// unchanged compares what is read; fields that nothing reads are not written again.
func unchanged(t *testing.T, got, want []byte) {
	t.Helper()
	got, want = bytes.Clone(got), bytes.Clone(want)
	clear(got[8:12])
	clear(want[8:12])
	if !bytes.HasPrefix(got, want) {
		t.Fatalf("written again\n%x is\n%x", want, got)
	}
}

func fuzzSnapshot(t *testing.T, data []byte) {
	disk := vfs.NewMem()
	f, err := disk.Create(snapshotName(partSeed))
	if err == nil {
		err = f.WriteVecAt([][]byte{data}, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	alloc.Within(t, len(data), 4, func() {
		s, state, fault, err := readSnapshot(disk, "", partSeed)
		if err != nil || fault != "" {
			return
		}
		if s.seq != partSeed || !bytes.Equal(data[snapshotHeaderBytes:], state) {
			t.Fatalf("a state of %d bytes of %d for %d", len(state), len(data), s.seq)
		}
		unchanged(t, s.encode(), data[:52])
	})
}

func onDisk(t *testing.T, pad int, data []byte) vfs.File {
	f, err := vfs.NewMem().Create("f")
	if err == nil {
		err = f.WriteVecAt([][]byte{make([]byte, pad), data}, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func fuzzUnit(t *testing.T, data []byte, right bool) {
	head, ok := parseUnitHead(data, int64(len(data)))
	if right && ok {
		fixUnit(data, head)
	}
	file := onDisk(t, 0, data)
	alloc.Within(t, len(data), 8, func() {
		var u unit
		bad, err := readUnit(newWindow(file, int64(len(data)), headWindow), &u, partSeed, 0, true)
		if err != nil {
			t.Fatal(err)
		}
		if bad != "" {
			return
		}
		whole := Unit{Meta: bytes.Clone(u.meta())}
		for _, b := range u.stored(1, 0).Batches {
			whole.Batches = append(whole.Batches, data[b.Pos:b.Pos+int64(b.Len)])
		}
		again := tail{seed: partSeed, nextSeq: u.head.seq, incarnation: u.head.incarnation, prevCRC: u.head.prevCRC}
		var g group
		again.encode(&g, &footer{}, []Unit{whole}, u.head.durable)
		got := bytes.Join(g.bufs, nil)[:u.head.totalBytes]
		if !bytes.Equal(got[unitHeadBytes:], data[unitHeadBytes:u.head.totalBytes]) || !bytes.Equal(got[4:48], data[4:48]) {
			t.Fatalf("written again\n%x is\n%x", data[:u.head.totalBytes], got)
		}
	})
}

// fixUnit makes the checksums of a unit and its batches right, as far as they lie within data.
func fixUnit(data []byte, head unitHead) {
	at := unitHeadBytes + lengthBytes*head.batches + head.metaBytes
	crc := crc32.Update(partSeed, castagnoli, data[4:at])
	for i := range head.batches {
		size := int64(le.Uint32(data[unitHeadBytes+lengthBytes*i:]))
		if size < batchHeader || size > int64(len(data))-at {
			return
		}
		batch := data[at : at+size]
		sum := crc32.Checksum(batch[batchPrefix:], castagnoli)
		batch[17], batch[18], batch[19], batch[20] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
		crc = crc32.Update(crc, castagnoli, batch[:batchPrefix])
		at += size
	}
	le.PutUint32(data, crc)
}

func fuzzFooter(t *testing.T, data []byte, right bool) {
	h := segmentHeader{number: 1, firstSeq: 3, incarnation: 1}
	seed := h.secret.seed(h.number)
	p := footerPointer{pos: dataStart, size: int64(len(data)), firstSeq: 3, lastSeq: 3, endPos: dataStart + 1<<20}
	if right {
		p.lastSeq = fixFooter(data, seed)
	} else if len(data) >= positionBytes+4 {
		p.lastCRC = le.Uint32(data[positionBytes:])
	}
	if right && p.lastSeq >= 3 {
		p.endPos, p.lastCRC = 1<<40, lastFooterCRC(data)
	}
	file := onDisk(t, dataStart, data)
	alloc.Within(t, len(data), 8, func() {
		var again footer
		err := readFooter(file, "f", p, h, func(u *unit) error {
			var batches [][]byte
			for i := range u.head.batches {
				batches = append(batches, u.headers[batchHeader*i:][:batchHeader])
			}
			again.add(u.pos, append(u.head.encode(nil), u.fixed...), batches)
			return nil
		})
		if got := bytes.Join(again.chunks, nil); err == nil && len(got) != len(data) {
			t.Fatalf("a footer of %d bytes is written again as %d", len(data), len(got))
		}
	})
}

// fixFooter makes the entries that data begins with right, and a chain, and says how far that goes.
func fixFooter(data []byte, seed uint32) (lastSeq uint64) {
	lastSeq, prev := uint64(2), uint32(0)
	for at := int64(0); at+positionBytes+unitHeadBytes <= int64(len(data)); {
		b := data[at+positionBytes:]
		le.PutUint64(b[8:], lastSeq+1)
		le.PutUint32(b[28:], prev)
		head, ok := parseUnitHead(b, 1<<40)
		size := unitHeadBytes + head.metaBytes + (lengthBytes+batchHeader)*head.batches
		if !ok || size > int64(len(b)) {
			return lastSeq
		}
		fixed := unitHeadBytes + head.metaBytes + lengthBytes*head.batches
		prev = crc32.Update(seed, castagnoli, b[4:fixed])
		for i := range head.batches {
			prev = crc32.Update(prev, castagnoli, b[fixed+batchHeader*i:][:batchPrefix])
		}
		le.PutUint32(b, prev)
		at += positionBytes + size
		lastSeq++
	}
	return lastSeq
}

// lastFooterCRC is the checksum of the last whole entry.
func lastFooterCRC(data []byte) (crc uint32) {
	for at := int64(0); at+positionBytes+unitHeadBytes <= int64(len(data)); {
		b := data[at+positionBytes:]
		head, ok := parseUnitHead(b, 1<<40)
		size := unitHeadBytes + head.metaBytes + (lengthBytes+batchHeader)*head.batches
		if !ok || size > int64(len(b)) {
			return crc
		}
		crc = head.crc
		at += positionBytes + size
	}
	return crc
}
