package codec

import (
	"errors"
	"testing"
)

// FuzzReader reads arbitrary bytes in an arbitrary order of calls: no panic, nothing after the first problem, and every
// problem is ErrCorrupt.
func FuzzReader(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, AppendOptional(AppendBytes(AppendString(nil, "a"), []byte("b")), nil))
	f.Add([]byte{9, 9, 9}, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1})
	f.Fuzz(func(t *testing.T, calls, data []byte) {
		r := NewReader(data)
		for _, call := range calls {
			before, failed := r.Len(), r.Err()
			zero := read(t, &r, call)
			if r.Len() > before || failed != nil && (r.Err() != failed || !zero) {
				t.Fatalf("call %d: %d of %d bytes left, %v after %v", call, r.Len(), before, r.Err(), failed)
			}
		}
		left := r.Len()
		if err := r.End(); left > 0 && err == nil || err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes left: %v", left, err)
		}
	})
}

// read makes one call and reports whether it gave the zero value.
func read(t *testing.T, r *Reader, call byte) (zero bool) {
	switch call % 13 {
	case 0:
		return r.Byte() == 0
	case 1:
		return !r.Bool()
	case 2:
		return r.Uvarint() == 0
	case 3:
		return r.Varint() == 0
	case 4:
		return r.Int16() == 0
	case 5:
		return r.Int32() == 0
	case 6:
		return r.Natural() == 0
	case 7:
		return r.Uint32() == 0
	case 8:
		size := int(call)/13 + 1
		n := r.Count(size)
		if n*size > r.Len() {
			t.Fatalf("%d elements of %d bytes in %d bytes", n, size, r.Len())
		}
		return n == 0
	case 9:
		return r.UUID() == [16]byte{}
	case 10:
		return r.String() == ""
	case 11:
		return len(r.Bytes()) == 0
	default:
		return r.Optional() == nil
	}
}

func TestWhatIsAppendedIsRead(t *testing.T) {
	text := "text"
	b := AppendOptional(AppendOptional(AppendBytes(AppendString(nil, text), []byte{1, 2}), &text), nil)
	r := NewReader(b)
	if s, two, some, none := r.String(), r.Bytes(), r.Optional(), r.Optional(); s != text || len(two) != 2 || some == nil || *some != text || none != nil {
		t.Errorf("%q, % x, %v, %v", s, two, some, none)
	}
	if err := r.End(); err != nil {
		t.Error(err)
	}
}
