package blob

import "testing"

// TestJudge walks all outcomes of an attempt to publish and of the look that follows.
func TestJudge(t *testing.T) {
	kinds := []error{ErrTemporary, ErrExists, ErrBlockList, ErrBlockCount, ErrRefused, ErrInvalid, ErrNotFound}
	for _, look := range append(kinds, nil) {
		if v := judge(nil, look, false); v != confirmed {
			t.Errorf("a reply of success, then %v: %v", look, v)
		}
	}
	for _, commit := range kinds {
		if v := judge(commit, nil, true); v != confirmed {
			t.Errorf("%v, ours is there: %v", commit, v)
		}
		if v := judge(commit, nil, false); v != fenced {
			t.Errorf("%v, another's is there: %v", commit, v)
		}
	}
	f := func(commit, look error, want verdict) {
		t.Helper()
		if v := judge(commit, look, false); v != want {
			t.Errorf("%v, then %v: %v, want %v", commit, look, v, want)
		}
	}
	f(ErrBlockList, ErrNotFound, gone)
	f(ErrBlockList, ErrTemporary, again)
	f(ErrTemporary, ErrNotFound, again)
	f(ErrTemporary, ErrTemporary, again)
	f(ErrExists, ErrNotFound, again)
	f(ErrExists, ErrTemporary, again)
	f(ErrRefused, ErrNotFound, refused)
	f(ErrRefused, ErrTemporary, refused)
	f(ErrInvalid, ErrNotFound, refused)
}

func TestIsOurs(t *testing.T) {
	who := identity{job: "flights", run: "7", sink: "delays", task: "window-0"}
	b := &goldenToken().Blobs[0]
	f := func(p Props, want bool) {
		t.Helper()
		if got, what := isOurs(who, b, p); got != want || what == "" {
			t.Errorf("%+v: %v, %q", p, got, what)
		}
	}
	f(Props{SizeBytes: 1, Metadata: map[string]string{commitKey: who.commitID(b)}}, true)
	f(Props{SizeBytes: b.Bytes, HasChecksum: true, Checksum: b.Checksum, Metadata: map[string]string{commitKey: "1/other"}}, false)
	f(Props{SizeBytes: b.Bytes, HasChecksum: true, Checksum: b.Checksum}, true)
	f(Props{SizeBytes: b.Bytes, HasChecksum: true, Checksum: b.Checksum + 1}, false)
	f(Props{SizeBytes: b.Bytes + 1, HasChecksum: true, Checksum: b.Checksum}, false)
	f(Props{SizeBytes: b.Bytes, Metadata: map[string]string{"other": "x"}}, false)
	f(Props{SizeBytes: b.Bytes}, false)
}
