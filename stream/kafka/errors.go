package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrFenced says that another process has taken over the transactional id or the group slot of this one. Its tasks
// have a new owner: the only right thing is to stop.
var ErrFenced = errors.New("fenced by another process")

// ErrNotServed says that the broker does not have a request at all.
var ErrNotServed = errors.New("the broker does not serve this request")

// UnreachableError says that nobody answered at the addresses of a cluster: no connection, or one that ended before the
// first answer.
type UnreachableError struct {
	Brokers []string
	Within  time.Duration // how long it was tried; 0 for one try
	Err     error         // what the last try saw
}

func (e *UnreachableError) Error() string {
	within := ""
	if e.Within > 0 {
		within = fmt.Sprintf(" within %v", e.Within)
	}
	seen, hint := e.Err.Error(), "and is the address right?"
	if _, ok := errors.AsType[*kgo.ErrFirstReadEOF](e.Err); ok {
		// A broker that is starting or stopping does this too: franz-go's text knows of one reason only.
		seen, hint = "it accepts connections and drops them", "is the address right, and does it want TLS or SASL?"
	}
	return fmt.Sprintf("kafka: no broker answered at %s%s: %s: is it running, %s",
		strings.Join(e.Brokers, ", "), within, seen, hint)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Unanswered reports whether err is of a broker that cannot be reached or went away, so that another try may succeed. What
// a broker answers, and what is wrong with this side's addresses, certificates or permissions, is not.
func Unanswered(err error) bool {
	if _, ok := errors.AsType[*UnreachableError](err); ok {
		return true
	}
	for _, is := range []func(error) bool{
		isA[*kerr.Error], isA[*tls.CertificateVerificationError], isA[tls.RecordHeaderError], isA[tls.AlertError],
		isA[*net.AddrError], isA[*net.ParseError], isA[*fs.PathError],
		func(err error) bool { return errors.Is(err, os.ErrPermission) || errors.Is(err, context.Canceled) },
	} {
		if is(err) {
			return false
		}
	}
	return isA[net.Error](err) || isA[*kgo.ErrFirstReadEOF](err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) ||
		kgo.IsRetryableBrokerErr(err)
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// MissingTopicError names a topic that does not exist.
type MissingTopicError struct{ Topic string }

func (e *MissingTopicError) Error() string {
	return fmt.Sprintf("kafka: topic %q does not exist", e.Topic)
}

// RecreatedTopicError says that a topic was deleted and made again since the job first saw it: its offsets mean other
// records now.
type RecreatedTopicError struct {
	Topic         string
	WantID, GotID string
}

func (e *RecreatedTopicError) Error() string {
	return fmt.Sprintf("kafka: topic %q was recreated: its id was %s and is %s, so the job's offsets no longer fit: "+
		"run the job under another name, or delete its topics and its group and start over", e.Topic, e.WantID, e.GotID)
}

// DifferentTopicError says that a topic exists and is not as the job needs it.
type DifferentTopicError struct {
	Topic string
	What  string // "partitions", "cleanup.policy", …
	Want  string
	Got   string
}

func (e *DifferentTopicError) Error() string {
	return fmt.Sprintf("kafka: topic %q exists with %s %s, the job needs %s: use another name, or delete the topic if its data may go",
		e.Topic, e.What, e.Got, e.Want)
}

// TransactionTimeoutError says that the broker does not allow transactions as long as the job needs them.
type TransactionTimeoutError struct {
	WantMs int64
	MaxMs  int64 // 0 if the broker did not say
}

func (e *TransactionTimeoutError) Error() string {
	if e.MaxMs == 0 {
		return fmt.Sprintf("kafka: the broker refuses a transaction timeout of %d ms as longer than its transaction.max.timeout.ms: "+
			"lower the job's transaction timeout, or raise the broker's maximum", e.WantMs)
	}
	return fmt.Sprintf("kafka: the job's transaction timeout of %d ms exceeds the broker's transaction.max.timeout.ms of %d ms: "+
		"lower the first or raise the second", e.WantMs, e.MaxMs)
}

// TopologyError says that a member of the group runs the job with other stages or task counts.
type TopologyError struct{ MemberID string }

func (e *TopologyError) Error() string {
	return fmt.Sprintf("kafka: member %s of the group runs another topology of this job: stop all of its processes before changing it", e.MemberID)
}

// OffsetRangeError says that a position lies outside of what the partition still holds.
type OffsetRangeError struct {
	TopicPartition
	Position int64
	LogStart int64
}

func (e *OffsetRangeError) Error() string {
	return fmt.Sprintf("kafka: %s: position %d is outside of the log, which starts at %d: records that the job had not read are gone "+
		"(retention, DeleteRecords, or a recreated topic)", e.TopicPartition, e.Position, e.LogStart)
}

// isFencing reports whether a broker says that a newer producer holds the transactional id: by its own code from a
// coordinator, by a stale epoch from a partition.
func isFencing(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
}

// Refused reports whether a broker refuses a request for a reason that repeating it will not change: a record that it
// does not take, a permission that is missing.
func Refused(err error) bool {
	for _, e := range []error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.InvalidTopicException,
		kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.UnsupportedVersion, kerr.PolicyViolation,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// codeError turns a wire code into an error that says which request it answered.
func codeError(what string, code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err == nil {
		return nil
	}
	if message != nil && *message != "" {
		return fmt.Errorf("kafka: %s: %w (%s)", what, err, *message)
	}
	return fmt.Errorf("kafka: %s: %w", what, err)
}
