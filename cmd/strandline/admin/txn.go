package admin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func txnCommand() *cobra.Command {
	return parent("txn", "List, describe and abort transactions, find hanging ones",
		exits+";\n2 if find-hanging found a hanging transaction, its 1 is that it could not look.",
		txnList, txnDescribe, txnProducers, txnAbort, txnHanging)
}

var txnStates = []string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

type listedTxn struct {
	ID          string `json:"transactionalId"`
	State       string `json:"state"`
	ProducerID  int64  `json:"producerId"`
	Coordinator int32  `json:"coordinator"`
}

func txnList(o *options) *cobra.Command {
	var states []string
	var producers []int64
	var pattern string
	var longer time.Duration
	cmd := &cobra.Command{
		Use: "list", Short: "List transactional ids", Args: NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := asKnown("transaction", states, txnStates); err != nil {
				return err
			}
			return o.run(cmd, func(s *session) error {
				req := kmsg.NewPtrListTransactionsRequest()
				req.StateFilters, req.ProducerIDFilters = states, producers
				if pattern != "" {
					req.TransactionalIDPattern = &pattern
				}
				if longer > 0 {
					req.DurationFilterMillis = longer.Milliseconds()
				}
				rows, err := s.listTransactions(req)
				if err != nil {
					return err
				}
				return show(s, "TRANSACTIONAL ID\tSTATE\tPRODUCER ID\tCOORDINATOR", rows, func(t listedTxn) []any {
					return []any{t.ID, t.State, t.ProducerID, t.Coordinator}
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&states, "state", nil, "only ids in this state ("+strings.Join(txnStates, ", ")+"), may be repeated")
	f.Int64SliceVar(&producers, "producer-id", nil, "only this producer id, may be repeated")
	f.StringVar(&pattern, "pattern", "", "only ids that this regular expression (RE2) matches as a whole; needs Apache Kafka 4.1 or later")
	f.DurationVar(&longer, "longer-than", 0, "only ids whose transaction has been open for longer; needs Apache Kafka 3.8 or later")
	return cmd
}

// listTransactions asks every broker. A filter that a broker's version does not know would be dropped silently: that is an
// error instead.
func (s *session) listTransactions(req *kmsg.ListTransactionsRequest) ([]listedTxn, error) {
	var rows []listedTxn
	for _, shard := range s.kafka.RequestSharded(s.ctx, req) {
		if shard.Err != nil {
			return nil, fmt.Errorf("broker %d: %w", shard.Meta.NodeID, shard.Err)
		}
		resp := shard.Resp.(*kmsg.ListTransactionsResponse)
		switch {
		case resp.ErrorCode != 0:
			return nil, fmt.Errorf("broker %d: %w", shard.Meta.NodeID, kerr.ErrorForCode(resp.ErrorCode))
		case req.DurationFilterMillis > 0 && resp.Version < 1, req.TransactionalIDPattern != nil && resp.Version < 2:
			return nil, fmt.Errorf("broker %d answers ListTransactions in version %d, which knows no such filter", shard.Meta.NodeID, resp.Version)
		case len(resp.UnknownStateFilters) > 0:
			return nil, fmt.Errorf("broker %d knows no state %s", shard.Meta.NodeID, strings.Join(resp.UnknownStateFilters, ", "))
		}
		for _, t := range resp.TransactionStates {
			rows = append(rows, listedTxn{t.TransactionalID, t.TransactionState, t.ProducerID, shard.Meta.NodeID})
		}
	}
	slices.SortFunc(rows, func(a, b listedTxn) int { return strings.Compare(a.ID, b.ID) })
	return rows, nil
}

type describedTxn struct {
	ID          string           `json:"transactionalId"`
	State       string           `json:"state"`
	ProducerID  int64            `json:"producerId"`
	Epoch       int16            `json:"producerEpoch"`
	TimeoutMs   int32            `json:"timeoutMs"`
	OpenSince   *time.Time       `json:"openSince,omitempty"`
	Coordinator int32            `json:"coordinator"`
	Partitions  []topicPartition `json:"partitions"`
}

type topicPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

func (p topicPartition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Partition) }

func txnDescribe(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "describe TRANSACTIONAL-ID...", Short: "Show what the coordinator knows", Args: someArgs,
		RunE: func(cmd *cobra.Command, ids []string) error {
			return o.run(cmd, func(s *session) error {
				found, err := s.DescribeTransactions(s.ctx, ids...)
				if err != nil {
					return err
				}
				var rows []describedTxn
				var unknown []error
				for _, id := range ids {
					t, err := found.On(id, nil)
					if err := cmp.Or(err, t.Err); err != nil {
						unknown = append(unknown, fmt.Errorf("transactional id %s: %w", id, err))
						continue
					}
					rows = append(rows, describeTxn(t))
				}
				if err := errors.Join(unknown...); err != nil {
					return err
				}
				return show(s, "TRANSACTIONAL ID\tSTATE\tPRODUCER ID\tEPOCH\tTIMEOUT\tOPEN SINCE\tPARTITIONS", rows, func(t describedTxn) []any {
					since := "-"
					if t.OpenSince != nil {
						since = t.OpenSince.Format(time.RFC3339)
					}
					return []any{t.ID, t.State, t.ProducerID, t.Epoch, time.Duration(t.TimeoutMs) * time.Millisecond, since, cmp.Or(strings.Trim(fmt.Sprint(t.Partitions), "[]"), "-")}
				})
			})
		},
	}
}

func describeTxn(t kadm.DescribedTransaction) describedTxn {
	d := describedTxn{
		ID: t.TxnID, State: t.State, ProducerID: t.ProducerID, Epoch: t.ProducerEpoch, TimeoutMs: t.TimeoutMillis,
		Coordinator: t.Coordinator, Partitions: []topicPartition{},
	}
	if t.StartTimestamp >= 0 {
		since := time.UnixMilli(t.StartTimestamp).UTC()
		d.OpenSince = &since
	}
	t.Topics.Each(func(topic string, partition int32) {
		d.Partitions = append(d.Partitions, topicPartition{topic, partition})
	})
	slices.SortFunc(d.Partitions, func(a, b topicPartition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return d
}

type describedProducer struct {
	Topic            string     `json:"topic"`
	Partition        int32      `json:"partition"`
	ProducerID       int64      `json:"producerId"`
	Epoch            int16      `json:"producerEpoch"`
	LastSequence     int32      `json:"lastSequence"`
	LastTime         *time.Time `json:"lastTime,omitempty"`
	CoordinatorEpoch int32      `json:"coordinatorEpoch"`
	OpenFrom         int64      `json:"openFrom"` // first offset of the open transaction, -1 without
}

func newDescribedProducer(p kadm.DescribedProducer) describedProducer {
	d := describedProducer{p.Topic, p.Partition, p.ProducerID, p.ProducerEpoch, p.LastSequence, nil, p.CoordinatorEpoch, p.CurrentTxnStartOffset}
	if p.LastTimestamp >= 0 {
		at := time.UnixMilli(p.LastTimestamp).UTC()
		d.LastTime = &at
	}
	return d
}

const producerHead = "TOPIC\tPARTITION\tPRODUCER ID\tEPOCH\tLAST SEQUENCE\tLAST TIME\tCOORDINATOR EPOCH\tOPEN FROM"

func (d describedProducer) cells() []any {
	last := "-"
	if d.LastTime != nil {
		last = d.LastTime.Format(time.RFC3339)
	}
	return []any{d.Topic, d.Partition, d.ProducerID, d.Epoch, orDash(int64(d.LastSequence)), last, orDash(int64(d.CoordinatorEpoch)), orDash(d.OpenFrom)}
}

func txnProducers(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "producers TOPIC...", Short: "Show who has written to a topic's partitions, and what is open there", Args: someArgs,
		RunE: func(cmd *cobra.Command, names []string) error {
			return o.run(cmd, func(s *session) error {
				all, err := s.producers(names)
				if err != nil {
					return err
				}
				var rows []describedProducer
				for _, p := range all {
					rows = append(rows, newDescribedProducer(p))
				}
				return show(s, producerHead, rows, describedProducer.cells)
			})
		},
	}
}

// producers describes the producers of all partitions of topics; of all topics if none is named.
func (s *session) producers(topics []string) ([]kadm.DescribedProducer, error) {
	listed, err := s.ListTopics(s.ctx, topics...)
	if err != nil {
		return nil, err
	}
	set := kadm.TopicsSet{}
	for _, t := range listed.Sorted() {
		if t.Err != nil {
			return nil, fmt.Errorf("topic %s: %w", t.Topic, t.Err)
		}
		set.Add(t.Topic, t.Partitions.Numbers()...)
	}
	if len(set) == 0 {
		return nil, nil
	}
	described, err := s.DescribeProducers(s.ctx, set)
	if err != nil {
		return nil, err
	}
	var failed []error
	described.EachPartition(func(p kadm.DescribedProducersPartition) {
		if p.Err != nil {
			failed = append(failed, fmt.Errorf("partition %s/%d: %w", p.Topic, p.Partition, refused(p.Err, p.ErrMessage)))
		}
	})
	return described.SortedProducers(), errors.Join(failed...)
}

func txnAbort(o *options) *cobra.Command {
	var topic string
	var partition int32
	var start int64
	cmd := &cobra.Command{
		Use:   "abort [TRANSACTIONAL-ID...]",
		Short: "Abort open transactions",
		Long: "With transactional ids: fences their producers, which aborts what these have open.\n" +
			"With --topic, --partition and --start-offset: writes an abort marker for the transaction that is open in that partition\n" +
			"from that offset on, past the coordinator. That is for a hanging transaction, which no coordinator knows (strandline txn find-hanging).",
		RunE: func(cmd *cobra.Command, ids []string) error {
			marker := cmd.Flags().Changed("topic") || cmd.Flags().Changed("partition") || cmd.Flags().Changed("start-offset")
			switch {
			case marker && (len(ids) > 0 || topic == "" || partition < 0 || start < 0):
				return errors.New("--topic, --partition and --start-offset go together, and without transactional ids")
			case !marker && len(ids) == 0:
				return errors.New("nothing to abort: name transactional ids, or a transaction by --topic, --partition and --start-offset")
			}
			return o.run(cmd, func(s *session) error {
				if marker {
					return s.abortOpen(topic, partition, start)
				}
				return s.fence(ids)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&topic, "topic", "", "topic of the transaction")
	f.Int32Var(&partition, "partition", -1, "partition of the transaction")
	f.Int64Var(&start, "start-offset", -1, "first offset of the transaction in the partition")
	return cmd
}

// fenceTimeoutMs is the timeout of the producer that fences; it never begins a transaction.
const fenceTimeoutMs = 60_000

// fence takes each transactional id as a new producer would.
func (s *session) fence(ids []string) error {
	r := results{kind: "transactional id"}
	known, err := s.DescribeTransactions(s.ctx, ids...)
	if err != nil {
		return err
	}
	for _, id := range once(ids) {
		t, err := known.On(id, nil)
		if err := cmp.Or(err, t.Err); err != nil { // InitProducerId would make a new one
			r.add(id, err)
			continue
		}
		r.add(id, s.fenceOne(id))
	}
	return s.report("aborted", r)
}

func (s *session) fenceOne(id string) error {
	for {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = &id, fenceTimeoutMs
		resp, err := req.RequestWith(s.ctx, s.kafka)
		if err != nil {
			return err
		}
		// Apache Kafka answers so until the markers of the aborted transaction are written.
		if resp.ErrorCode != kerr.ConcurrentTransactions.Code {
			return kerr.ErrorForCode(resp.ErrorCode)
		}
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// OpenTransaction is what a partition knows of a transaction.
type OpenTransaction struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	ProducerID int64  `json:"producerId"`
}

func (t *OpenTransaction) String() string {
	return fmt.Sprintf("of producer %d in %s/%d", t.ProducerID, t.Topic, t.Partition)
}

// abortOpen writes an abort marker for the transaction that is open in a partition from offset start on.
func (s *session) abortOpen(topic string, partition int32, start int64) error {
	all, err := s.producers([]string{topic})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(p kadm.DescribedProducer) bool {
		return p.Partition == partition && p.CurrentTxnStartOffset == start
	})
	if i < 0 {
		return fmt.Errorf("no transaction is open from offset %d on in partition %d of topic %s; strandline txn producers %s shows which are", start, partition, topic, topic)
	}
	p := all[i]
	set := kadm.TopicsSet{}
	set.Add(topic, partition)
	done, err := s.WriteTxnMarkers(s.ctx, kadm.TxnMarkers{
		ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch, CoordinatorEpoch: max(0, p.CoordinatorEpoch), Topics: set,
	})
	if err != nil {
		return err
	}
	r := results{kind: "transaction"}
	done.EachPartition(func(m kadm.TxnMarkersPartitionResponse) {
		r.addOutcome(outcome{OpenTransaction: &OpenTransaction{m.Topic, m.Partition, m.ProducerID}}, m.Err)
	})
	return s.report("aborted", r)
}

func txnHanging(o *options) *cobra.Command {
	var topics []string
	var longer time.Duration
	cmd := &cobra.Command{
		Use:   "find-hanging",
		Short: "Find transactions that are open in a partition and known to no coordinator",
		Long: "A transaction that is open in a partition for longer than any may take, and that no coordinator knows or that its\n" +
			"coordinator does not list there, holds readers of committed records back for ever.\n" +
			"Exit codes: 0 if there is none, 2 if there is one, 1 if it could not look.",
		Args: NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd, func(s *session) error {
				hanging, err := s.hanging(topics, time.Now().Add(-longer))
				if err != nil {
					return err
				}
				if err := show(s, producerHead, hanging, describedProducer.cells); err != nil {
					return err
				}
				if n := len(hanging); n > 0 {
					return fmt.Errorf("%w %s; end one with: strandline txn abort --topic %s --partition %d --start-offset %d",
						ErrFound, count(n, "hanging transaction"), hanging[0].Topic, hanging[0].Partition, hanging[0].OpenFrom)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringArrayVar(&topics, "topic", nil, "only this topic, may be repeated (default: all)")
	cmd.Flags().DurationVar(&longer, "longer-than", 15*time.Minute, "the longest transaction timeout that the brokers allow")
	return cmd
}

// hanging finds what is open since before and what no coordinator will end.
func (s *session) hanging(topics []string, before time.Time) ([]describedProducer, error) {
	all, err := s.producers(topics)
	if err != nil {
		return nil, err
	}
	var open []kadm.DescribedProducer
	var ids []int64
	for _, p := range all {
		if p.CurrentTxnStartOffset >= 0 && p.LastTimestamp < before.UnixMilli() {
			open = append(open, p)
			ids = append(ids, p.ProducerID)
		}
	}
	if len(open) == 0 {
		return nil, nil
	}
	req := kmsg.NewPtrListTransactionsRequest()
	req.ProducerIDFilters = ids
	known, err := s.listTransactions(req)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range known {
		names = append(names, t.ID)
	}
	transactions := kadm.DescribedTransactions{}
	if len(names) > 0 {
		if transactions, err = s.DescribeTransactions(s.ctx, names...); err != nil {
			return nil, err
		}
	}
	var hanging []describedProducer
	for _, p := range open {
		held := false
		for _, t := range transactions {
			held = held || t.Err == nil && t.ProducerID == p.ProducerID && t.Topics.Lookup(p.Topic, p.Partition)
		}
		if !held {
			hanging = append(hanging, newDescribedProducer(p))
		}
	}
	return hanging, nil
}
