package blob

import (
	"fmt"

	"github.com/strandline-io/strandline/internal/mutant"
)

// verdict is what is known of a done blob after an attempt to publish it and a look at its name.
type verdict int

const (
	confirmed verdict = iota // it is visible, and ours
	again                    // nothing is known: try again
	fenced                   // another's blob has the name
	gone                     // neither staged nor visible
	refused                  // the attempt failed and would fail again
)

func (v verdict) String() string {
	return [...]string{"confirmed", "again", "fenced", "gone", "refused"}[v]
}

// judge turns the outcome of a Commit call (commitKind, nil for success) and of the look at the name that follows a
// failure (lookKind, and ours if it found a blob) into a verdict. A refusal to replace (ErrExists), a lost reply and an
// invalid block list can each be the echo of our own success, so what is there decides.
func judge(commitKind, lookKind error, ours bool) verdict {
	switch {
	case commitKind == nil:
		return confirmed
	case commitKind == ErrExists && mutant.On("a refusal taken as published"):
		return confirmed
	case commitKind == ErrBlockList && mutant.On("expired blocks taken as published"):
		return confirmed
	case lookKind == nil && ours:
		return confirmed
	case lookKind == nil:
		return fenced
	case commitKind == ErrBlockList && lookKind == ErrNotFound:
		return gone
	case commitKind == ErrRefused || commitKind == ErrInvalid:
		return refused
	}
	return again
}

// isOurs compares a visible blob with what the token says: by the commit id where the store keeps metadata, else by
// length and checksum, which the random sync marker makes unique. got describes what was found.
func isOurs(who identity, b *Blob, p Props) (ours bool, got string) {
	if mutant.On("another's blob taken as ours") {
		return true, ""
	}
	if id, ok := p.Metadata[commitKey]; ok {
		return id == who.commitID(b), id
	}
	got = fmt.Sprintf("%d bytes", p.SizeBytes)
	if p.HasChecksum {
		got += fmt.Sprintf(", checksum %08x", p.Checksum)
	}
	return p.HasChecksum && p.SizeBytes == b.Bytes && p.Checksum == b.Checksum, got
}
