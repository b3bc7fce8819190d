// Package kafka is the stream processor's door to any broker that speaks the Kafka protocol: Strandline's own, Apache
// Kafka, Redpanda. It is the only package of the processor that knows franz-go. What it gives is small: a Client for
// administration and reads to a known end, a Producer that is one transactional id, a Fetcher whose positions are
// exact, and a Member of a consumer group whose balancer assigns whole tasks.
//
// franz-go's GroupTransactSession is not used: it aborts on every revoke and hides TxnOffsetCommit, while a task has to
// commit on revoke and chooses which offsets it commits.
package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Config says how brokers are reached. It is copied; a zero field has the default named with it.
type Config struct {
	// Brokers are host:port addresses to start from. At least one.
	Brokers []string
	// ClientID is what broker logs show. Default "strandline".
	ClientID string
	// Dial opens connections; nil means the net package. Tests and simulations give an in-memory network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS, if set, encrypts every connection. An empty ServerName is each address's host.
	TLS *tls.Config
	// DialTimeout bounds one connection attempt. Default 10 s.
	DialTimeout time.Duration
	// Logger gets what franz-go says at warning level and above. Nil is silent.
	Logger *slog.Logger
	// Options are further options of franz-go, for SASL. They are applied first, so that they cannot change what
	// exactly-once needs.
	Options []kgo.Opt
}

const (
	defaultClientID    = "strandline"
	defaultDialTimeout = 10 * time.Second
	// metadataMinAge is how soon metadata may be asked for again: topics are created and used at once.
	metadataMinAge = 50 * time.Millisecond
	// txnOffsetCommitByName is the newest TxnOffsetCommit that names topics; version 6 wants topic ids of the moment,
	// while the ids of a job are those that its starter recorded.
	txnOffsetCommitByName = 5
	// txnOffsetCommitV1 is the newest version under transaction version 1, which adds the group by AddOffsetsToTxn.
	txnOffsetCommitV1  = 4
	keyTxnOffsetCommit = 28
	keyEndTxn          = 26
)

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// Compare orders by topic, then partition.
func (tp TopicPartition) Compare(o TopicPartition) int {
	switch {
	case tp.Topic < o.Topic:
		return -1
	case tp.Topic > o.Topic:
		return 1
	}
	return int(tp.Partition) - int(o.Partition)
}

// Validate names everything that is wrong with c at once.
func (c Config) Validate() error {
	var errs []error
	if len(c.Brokers) == 0 {
		errs = append(errs, errors.New("kafka: no broker address given: name at least one host:port"))
	}
	for _, b := range c.Brokers {
		if b == "" {
			errs = append(errs, errors.New("kafka: empty broker address: give host:port"))
		}
	}
	if c.DialTimeout < 0 {
		errs = append(errs, fmt.Errorf("kafka: dial timeout %v is negative", c.DialTimeout))
	}
	return errors.Join(errs...)
}

func (c Config) options() []kgo.Opt {
	id := c.ClientID
	if id == "" {
		id = defaultClientID
	}
	dialTimeout := c.DialTimeout
	if dialTimeout == 0 {
		dialTimeout = defaultDialTimeout
	}
	opts := append([]kgo.Opt(nil), c.Options...)
	opts = append(opts,
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(id),
		kgo.DialTimeout(dialTimeout),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.DisableClientMetrics(),
	)
	if c.Dial != nil || c.TLS != nil {
		opts = append(opts, kgo.Dialer(c.dialer()))
	}
	if c.Logger != nil {
		opts = append(opts, kgo.WithLogger(slogger{c.Logger}))
	}
	return opts
}

// dialer is how connections are opened: plain or with TLS over whatever Dial gives.
func (c Config) dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := c.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	if c.TLS == nil {
		return dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		tlsConfig := c.TLS.Clone()
		if host, _, err := net.SplitHostPort(address); err == nil && tlsConfig.ServerName == "" {
			tlsConfig.ServerName = host
		}
		secure := tls.Client(conn, tlsConfig)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, fmt.Errorf("TLS with %s: %w", address, err)
		}
		return secure, nil
	}
}

// versionsFor caps the requests that depend on the transaction version, because franz-go chooses the version of a raw
// request from what both sides can do, which is more than what a transaction of version 1 may do.
func versionsFor(transactionVersion int16) kgo.Opt {
	v := kversion.Stable()
	if transactionVersion >= 2 {
		v.SetMaxKeyVersion(keyTxnOffsetCommit, txnOffsetCommitByName)
	} else {
		v.SetMaxKeyVersion(keyTxnOffsetCommit, txnOffsetCommitV1)
	}
	return kgo.MaxVersions(v)
}

// slogger passes franz-go's warnings on. Its lower levels tell of every rebalance and transaction, which the driver
// tells better.
type slogger struct{ log *slog.Logger }

func (s slogger) Level() kgo.LogLevel {
	ctx := context.Background()
	switch {
	case s.log.Enabled(ctx, slog.LevelDebug):
		return kgo.LogLevelInfo
	case s.log.Enabled(ctx, slog.LevelWarn):
		return kgo.LogLevelWarn
	}
	return kgo.LogLevelError
}

func (s slogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	l := slog.LevelDebug
	switch level {
	case kgo.LogLevelError, kgo.LogLevelWarn:
		l = slog.LevelWarn
	}
	s.log.Log(context.Background(), l, msg, keyvals...)
}
