package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/strandline-io/strandline/stream/blob"
)

// TestStore is the contract of blob.Store. open returns a store without visible or staged blobs under the names "a…"
// to "z…"; it is called once for each test.
func TestStore(t *testing.T, open func(t *testing.T) blob.Store) {
	for _, c := range []struct {
		name string
		test func(*suite)
	}{
		{"Commit makes staged blocks visible in the order of the list", (*suite).order},
		{"What is staged cannot be seen", (*suite).invisible},
		{"Commit never replaces", (*suite).createOnly},
		{"Of several commits one wins", (*suite).oneWins},
		{"Commit refuses a block that is not staged", (*suite).missingBlock},
		{"Commit drops what it does not list", (*suite).dropsUnlisted},
		{"An equal id is overwritten", (*suite).overwrites},
		{"Writers of one name share its blocks", (*suite).sharedName},
		{"A late block on a visible blob changes nothing", (*suite).lateBlock},
		{"Our own blob is recognised", (*suite).recognised},
		{"A missing blob is ErrNotFound", (*suite).notFound},
		{"List has a prefix and an order", (*suite).list},
		{"Delete", (*suite).delete},
		{"Large blocks, many blocks, at once", (*suite).parallel},
		{"An ended context ends the call", (*suite).context},
		{"Ensure may be repeated", (*suite).ensure},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &suite{T: t, ctx: t.Context(), store: open(t)}
			if err := s.store.Ensure(s.ctx); err != nil {
				t.Fatal(err)
			}
			c.test(s)
		})
	}
}

type suite struct {
	*testing.T
	ctx   context.Context
	store blob.Store
}

func nonce(n byte) blob.Nonce { return blob.Nonce{0: n, 15: 0xff} }

func (s *suite) stage(name string, id blob.BlockID, data string) {
	s.Helper()
	if err := s.store.Stage(s.ctx, name, id, []byte(data)); err != nil {
		s.Fatal(err)
	}
}

func (s *suite) commit(name string, ids ...blob.BlockID) {
	s.Helper()
	if err := s.store.Commit(s.ctx, name, ids, map[string]string{"strandline_commit": "1/x"}); err != nil {
		s.Fatal(err)
	}
}

func (s *suite) want(name, content string) {
	s.Helper()
	r, err := s.store.Read(s.ctx, name)
	if err != nil {
		s.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != content {
		s.Fatalf("%s holds %.100q, %v; want %.100q", name, got, err, content)
	}
	p, err := s.store.Props(s.ctx, name)
	if err != nil || p.SizeBytes != int64(len(content)) {
		s.Fatalf("%s: %+v, %v; want %d bytes", name, p, err, len(content))
	}
}

func (s *suite) wantKind(err, kind error) {
	s.Helper()
	var e *blob.StoreError
	if !errors.Is(err, kind) || !errors.As(err, &e) || e.Where == "" || e.Op == "" {
		s.Fatalf("error %v (%T), want a StoreError that is %q", err, err, kind)
	}
}

func (s *suite) wantNone(name string) {
	s.Helper()
	_, err := s.store.Props(s.ctx, name)
	s.wantKind(err, blob.ErrNotFound)
	_, err = s.store.Read(s.ctx, name)
	s.wantKind(err, blob.ErrNotFound)
}

func (s *suite) wantUncommitted(name string, want ...blob.BlockID) {
	s.Helper()
	got, err := s.store.Uncommitted(s.ctx, name)
	if err != nil {
		s.Fatal(err)
	}
	var ids []string
	for _, id := range want {
		ids = append(ids, string(id[:]))
	}
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		s.Fatalf("uncommitted blocks of %s: %x, want %x", name, got, ids)
	}
}

func (s *suite) order() {
	a, b, c := blob.NewBlockID(nonce(2), 0), blob.NewBlockID(nonce(1), 7), blob.NewBlockID(nonce(2), 1)
	s.stage("a/b/2024/01/02/03/04-05-6.avro", c, "three")
	s.stage("a/b/2024/01/02/03/04-05-6.avro", a, "one")
	s.stage("a/b/2024/01/02/03/04-05-6.avro", b, "two")
	s.commit("a/b/2024/01/02/03/04-05-6.avro", a, b, c)
	s.want("a/b/2024/01/02/03/04-05-6.avro", "onetwothree")
	s.stage("single", a, "alone")
	s.commit("single", a)
	s.want("single", "alone")
}

func (s *suite) invisible() {
	id := blob.NewBlockID(nonce(1), 0)
	s.wantUncommitted("a/x")
	s.stage("a/x", id, "hidden")
	s.wantNone("a/x")
	s.wantUncommitted("a/x", id)
	s.wantUncommitted("a/x2")
	err := s.store.List(s.ctx, "", func(e blob.Entry) error { return fmt.Errorf("listed: %v", e) })
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) createOnly() {
	first, second := blob.NewBlockID(nonce(1), 0), blob.NewBlockID(nonce(2), 0)
	s.stage("a/x", first, "first")
	s.commit("a/x", first)
	s.stage("a/x", second, "second, longer")
	s.wantKind(s.store.Commit(s.ctx, "a/x", []blob.BlockID{second}, nil), blob.ErrExists)
	s.want("a/x", "first")
}

func (s *suite) oneWins() {
	const writers = 6
	for round := range 10 {
		name := fmt.Sprintf("a/%d", round)
		for i := range writers {
			s.stage(name, blob.NewBlockID(nonce(byte(i)), 0), fmt.Sprint(i))
		}
		errs := make([]error, writers)
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() { errs[i] = s.store.Commit(s.ctx, name, []blob.BlockID{blob.NewBlockID(nonce(byte(i)), 0)}, nil) })
		}
		wg.Wait()
		won := -1
		for i, err := range errs {
			switch {
			case err == nil && won >= 0:
				s.Fatalf("commits %d and %d both succeeded", won, i)
			case err == nil:
				won = i
			case !errors.Is(err, blob.ErrExists) && !errors.Is(err, blob.ErrBlockList) && !errors.Is(err, blob.ErrTemporary):
				s.Fatal(err)
			}
		}
		if won < 0 {
			s.Fatalf("no commit succeeded: %v", errs)
		}
		s.want(name, fmt.Sprint(won))
	}
}

func (s *suite) missingBlock() {
	first := blob.NewBlockID(nonce(1), 0)
	s.stage("a/x", first, "first")
	err := s.store.Commit(s.ctx, "a/x", []blob.BlockID{first, blob.NewBlockID(nonce(1), 1)}, nil)
	s.wantKind(err, blob.ErrBlockList)
	s.wantNone("a/x")
	s.wantUncommitted("a/x", first)
	s.commit("a/x", first)
	s.want("a/x", "first")
}

func (s *suite) dropsUnlisted() {
	keep, drop := blob.NewBlockID(nonce(1), 0), blob.NewBlockID(nonce(2), 0)
	s.stage("a/x", keep, "keep")
	s.stage("a/x", drop, "drop")
	s.stage("a/x2", drop, "not touched")
	s.commit("a/x", keep)
	s.want("a/x", "keep")
	s.wantUncommitted("a/x")
	s.wantUncommitted("a/x2", drop)
}

func (s *suite) overwrites() {
	id := blob.NewBlockID(nonce(1), 0)
	s.stage("a/x", id, "old, and longer")
	s.stage("a/x", id, "new")
	s.wantUncommitted("a/x", id)
	s.commit("a/x", id)
	s.want("a/x", "new")
}

func (s *suite) sharedName() {
	ours, theirs := blob.NewBlockID(nonce(1), 0), blob.NewBlockID(nonce(2), 0)
	s.stage("a/x", theirs, "theirs")
	s.stage("a/x", ours, "ours")
	s.wantUncommitted("a/x", ours, theirs)
	s.commit("a/x", theirs, ours)
	s.want("a/x", "theirsours")
}

func (s *suite) lateBlock() {
	id, late := blob.NewBlockID(nonce(1), 0), blob.NewBlockID(nonce(2), 0)
	s.stage("a/x", id, "ours")
	s.commit("a/x", id)
	s.stage("a/x", late, "a zombie's")
	s.stage("a/x", id, "ours, again")
	s.want("a/x", "ours")
	s.wantKind(s.store.Commit(s.ctx, "a/x", []blob.BlockID{late}, nil), blob.ErrExists)
	s.want("a/x", "ours")
}

func (s *suite) recognised() {
	id := blob.NewBlockID(nonce(1), 0)
	s.stage("a/x", id, "content")
	meta := map[string]string{"strandline_commit": "1/job/run/task-0/00ff", "numberOfRecords": "12"}
	if err := s.store.Commit(s.ctx, "a/x", []blob.BlockID{id}, meta); err != nil {
		s.Fatal(err)
	}
	p, err := s.store.Props(s.ctx, "a/x")
	if err != nil {
		s.Fatal(err)
	}
	byMetadata := p.Metadata["strandline_commit"] == meta["strandline_commit"] && p.Metadata["numberofrecords"] == "12"
	byChecksum := len(p.Metadata) == 0 && p.HasChecksum && p.Checksum == Checksum([]byte("content"))
	if !byMetadata && !byChecksum {
		s.Fatalf("neither metadata in lower case nor a checksum: %+v", p)
	}
}

func (s *suite) notFound() {
	s.wantNone("a/x")
	s.wantNone("a")
	s.wantKind(s.store.Delete(s.ctx, "a/x"), blob.ErrNotFound)
	s.wantUncommitted("a/x")
	s.wantKind(s.store.Commit(s.ctx, "a/x", []blob.BlockID{blob.NewBlockID(nonce(1), 0)}, nil), blob.ErrBlockList)
}

func (s *suite) list() {
	id := blob.NewBlockID(nonce(1), 0)
	for _, name := range []string{"b/1", "a/2/y", "a/10/x", "a/2/x", "a-z"} {
		s.stage(name, id, name)
		s.commit(name, id)
	}
	s.stage("a/3/staged", id, "staged")
	f := func(prefix string, want ...string) {
		s.Helper()
		var got []string
		err := s.store.List(s.ctx, prefix, func(e blob.Entry) error {
			if e.SizeBytes != int64(len(e.Name)) {
				s.Errorf("%v", e)
			}
			got = append(got, e.Name)
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			s.Errorf("List(%q): %q, %v; want %q", prefix, got, err, want)
		}
	}
	f("", "a-z", "a/10/x", "a/2/x", "a/2/y", "b/1")
	f("a/", "a/10/x", "a/2/x", "a/2/y")
	f("a/2", "a/2/x", "a/2/y")
	f("a/2/y", "a/2/y")
	f("c")
	stop := errors.New("stop")
	if err := s.store.List(s.ctx, "", func(blob.Entry) error { return stop }); err != stop {
		s.Errorf("List returned %v, not visit's error", err)
	}
}

func (s *suite) delete() {
	id := blob.NewBlockID(nonce(1), 0)
	s.stage("a/x", id, "x")
	s.commit("a/x", id)
	if err := s.store.Delete(s.ctx, "a/x"); err != nil {
		s.Fatal(err)
	}
	s.wantNone("a/x")
	s.stage("a/x", id, "again")
	s.commit("a/x", id)
	s.want("a/x", "again")
}

func (s *suite) parallel() {
	const blocks = 24
	var want bytes.Buffer
	var ids []blob.BlockID
	var wg sync.WaitGroup
	for i := range blocks {
		id := blob.NewBlockID(nonce(byte(i%3)), uint32(i))
		data := bytes.Repeat([]byte{byte(i), 'x'}, 1+i*10_000)
		ids = append(ids, id)
		want.Write(data)
		wg.Go(func() {
			if err := s.store.Stage(s.ctx, "a/large", id, data); err != nil {
				s.Error(err)
			}
		})
	}
	wg.Wait()
	s.wantUncommitted("a/large", ids...)
	s.commit("a/large", ids...)
	s.want("a/large", want.String())
}

func (s *suite) context() {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	id := blob.NewBlockID(nonce(1), 0)
	s.wantKind(s.store.Stage(ctx, "a/x", id, []byte("x")), blob.ErrTemporary)
	s.wantKind(s.store.Commit(ctx, "a/x", []blob.BlockID{id}, nil), blob.ErrTemporary)
	_, err := s.store.Props(ctx, "a/x")
	s.wantKind(err, blob.ErrTemporary)
	_, err = s.store.Uncommitted(ctx, "a/x")
	s.wantKind(err, blob.ErrTemporary)
	_, err = s.store.Read(ctx, "a/x")
	s.wantKind(err, blob.ErrTemporary)
	s.wantKind(s.store.Ensure(ctx), blob.ErrTemporary)
	s.wantNone("a/x")
}

func (s *suite) ensure() {
	for range 3 {
		if err := s.store.Ensure(s.ctx); err != nil {
			s.Fatal(err)
		}
	}
}
