package blob

import (
	"errors"
	"fmt"
)

// What a Store's errors are, for errors.Is.
var (
	ErrNotFound   = errors.New("no such blob")
	ErrExists     = errors.New("the blob exists already")
	ErrBlockList  = errors.New("a listed block is not staged")
	ErrBlockCount = errors.New("too many uncommitted blocks under this name")
	// ErrTemporary covers timeouts, lost replies, broken connections and a busy service: the request may have been
	// carried out or not.
	ErrTemporary = errors.New("the store did not answer")
	// ErrRefused: not allowed, or not there, and repeating will not help.
	ErrRefused = errors.New("the store refuses")
	// ErrInvalid: the request itself is wrong.
	ErrInvalid = errors.New("invalid request to the store")
)

// StoreError is what a Store returns: what was tried, where, what happened and, where known, what to do.
type StoreError struct {
	Kind   error  // one of the Err… values
	Op     string // "stage", "commit", …
	Name   string // the blob, if one is concerned
	Where  string // the store
	Advice string // what to do; may be empty
	Err    error  // the cause; may be nil
}

func (e *StoreError) Error() string {
	what := e.Op
	if e.Name != "" {
		what += " " + e.Name
	}
	s := fmt.Sprintf("blob store %s: %s: %v", e.Where, what, e.Kind)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Advice != "" {
		s += "; " + e.Advice
	}
	return s
}

func (e *StoreError) Is(target error) bool { return target == e.Kind }
func (e *StoreError) Unwrap() error        { return e.Err }

// Permanent reports that repeating the work will not help.
func (e *StoreError) Permanent() bool { return e.Kind == ErrRefused || e.Kind == ErrInvalid }

// kindOf is the Err… value of err, nil for nil. An error that no store made counts as temporary.
func kindOf(err error) error {
	var e *StoreError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return e.Kind
	}
	return ErrTemporary
}

// FencedError: the name that a committed token lists as done holds a blob that this token did not make. Another writer
// took the name; the job must stop and keep its token.
type FencedError struct {
	Store string
	Name  string
	Want  string // our commit id
	Got   string // what the blob says
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("blob %s in %s is another writer's: its commit is %q, ours is %q; nothing was replaced and the "+
		"staged rows are kept for seven days: find out who writes there (the owner file says which job owns the prefix), "+
		"move that blob away and start the job again", e.Name, e.Store, e.Got, e.Want)
}

// Permanent reports that repeating the work will not help.
func (e *FencedError) Permanent() bool { return true }

// SupersededError: a blob that the token lists as open was finished and published by a later owner of the task. Whoever
// restores from this token is not the owner any more, and will be told so by Kafka.
type SupersededError struct {
	Store string
	Name  string
}

func (e *SupersededError) Error() string {
	return fmt.Sprintf("blob %s in %s, which is to be continued, was published by a later owner of this task: the "+
		"checkpoint that was restored is not the newest, read it again", e.Name, e.Store)
}

// GoneError: blocks that a committed token lists are neither staged nor published.
type GoneError struct {
	Store string
	Name  string
	Rows  int64
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("blob %s (%d rows) in %s can neither be published nor found: either it was published and removed "+
		"since, or its staged blocks expired (Azure drops them after seven days): if it was removed on purpose, restore it "+
		"or reset the sink's checkpoint; if it expired, these rows must be read again by a new run", e.Name, e.Rows, e.Store)
}

// Permanent reports that repeating the work will not help.
func (e *GoneError) Permanent() bool { return true }

// NameTakenError: the name of a new blob holds a visible blob already.
type NameTakenError struct {
	Store string
	Name  string
	// Again: this sink has found the name taken before. The first time it may be a later owner of the task that has
	// written the same rows; who restores and still finds it taken is the owner, and the blob is another's.
	Again bool
}

// Permanent reports that repeating the work will not help.
func (e *NameTakenError) Permanent() bool { return e.Again }

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("blob %s exists already in %s, though no committed transaction of this job lists it; nothing was "+
		"replaced: it is a leftover of a job whose checkpoints were deleted, or of another program: move it away, or give "+
		"the sink another prefix", e.Name, e.Store)
}

// OwnerError: the prefix belongs to another job, run or sink.
type OwnerError struct {
	Store string
	Name  string // the owner file
	Have  Owner
	Want  Owner
}

func (e *OwnerError) Error() string {
	return fmt.Sprintf("%s in %s says that this prefix belongs to %v, this is %v: give the sink another prefix, or remove "+
		"the old output together with that file", e.Name, e.Store, e.Have, e.Want)
}

// Permanent reports that repeating the work will not help.
func (e *OwnerError) Permanent() bool { return true }

// LostError: the run has written rows, and the store does not know the run.
type LostError struct {
	Store string
	Name  string // the owner file
	Owner Owner
	Rows  int64
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%v has given this sink %d rows, and %s holds no %s: it is not the store that the run began with, or it "+
		"was emptied: give the sink the store it began with, or run the job under another name to begin anew", e.Owner, e.Rows, e.Store, e.Name)
}

// Permanent reports that repeating the work will not help.
func (e *LostError) Permanent() bool { return true }

// RecordError: one record cannot be written. The writer goes on as if the record had not been given to it.
type RecordError struct {
	TimestampMs int64
	Reason      string
	Err         error
}

func (e *RecordError) Error() string {
	s := "record cannot be written as Avro: " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *RecordError) Unwrap() error { return e.Err }

// BadRecord marks the error as one record's, which an error policy may skip or divert.
func (e *RecordError) BadRecord() bool { return true }

// TokenError: bytes that are no token, a newer version's, or another writer's.
type TokenError struct {
	Reason string
}

func (e *TokenError) Error() string { return "blob token: " + e.Reason }

// Permanent reports that repeating the work will not help.
func (e *TokenError) Permanent() bool { return true }

// SizeError: something would exceed a bound after the transaction, so it is refused before.
type SizeError struct {
	What  string
	Size  int
	Limit int
	Fix   string
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("%s takes %d, the limit is %d: %s", e.What, e.Size, e.Limit, e.Fix)
}

// Permanent reports that repeating the work will not help.
func (e *SizeError) Permanent() bool { return true }
