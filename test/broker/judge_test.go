//go:build peers

package broker

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// settle waits until every transaction has ended.
func (st *storm) settle() {
	st.t.Helper()
	ctx := within(st.t, patience)
	allStable(st.t, ctx, st.server.Addr, stormTopics...)
}

// judge compares what is in the broker with what its clients know.
func (st *storm) judge(when string) {
	st.t.Helper()
	ctx := within(st.t, patience)
	allStable(st.t, ctx, st.server.Addr, stormTopics...)
	all := readAll(st.t, ctx, st.server.Addr, kgo.ReadUncommitted(), stormTopics)
	visible := readAll(st.t, ctx, st.server.Addr, kgo.ReadCommitted(), stormTopics)
	// A reader with other limits gets the batches in other portions.
	again := readAll(st.t, ctx, st.server.Addr, kgo.ReadCommitted(), stormTopics, kgo.FetchMaxBytes(4<<10), kgo.FetchMaxPartitionBytes(1<<10))
	st.mu.Lock()
	defer st.mu.Unlock()
	v := verdict{st: st, when: when, all: all, visible: visible}
	if len(visible) != len(again) {
		v.bad("two readers found %d and %d records", len(visible), len(again))
	}
	for at, value := range visible {
		if again[at] != value || all[at] != value {
			v.bad("%v holds %q, for another reader %q, for a read_uncommitted one %q", at, value, again[at], all[at])
		}
	}
	for at, value := range st.early {
		if now, ok := visible[at]; !ok || now != value {
			v.bad("%v showed %q during the storm and now %q", at, value, now)
		}
	}
	v.plain()
	v.ledger()
	v.copies(groupOffsets(st, kadm.NewClient(client(st.t, st.server.Addr))))
	if v.count > 0 {
		st.t.Errorf("%s: %d findings in all", when, v.count)
	}
}

// verdict collects findings.
type verdict struct {
	st           *storm
	when         string
	all, visible content
	count        int
}

// bad notes a finding; it shows the first ones.
func (v *verdict) bad(format string, args ...any) {
	v.st.t.Helper()
	if v.count++; v.count <= 10 {
		v.st.t.Errorf("%s: "+format, append([]any{v.when}, args...)...)
	}
}

// plain: every acknowledged record is where it was said to be, and nowhere else, in the order of its producer.
func (v *verdict) plain() {
	for at, value := range v.st.acknowledged {
		if v.visible[at] != value {
			v.bad("acknowledged as %q at %v, which holds %q", value, at, v.visible[at])
		}
	}
	for value, n := range v.visible.values(plainTopic) {
		if n != 1 {
			v.bad("%q is there %d times", value, n)
		}
	}
	if got := len(v.visible.values(plainTopic)); got != len(v.st.acknowledged) {
		v.bad("%d records, acknowledged were %d", got, len(v.st.acknowledged))
	}
	// Of one producer and partition later records have higher offsets.
	for p := range int32(partitions) {
		last := map[string]int{}
		for offset := int64(0); ; offset++ {
			value, ok := v.visible[position{plainTopic, p, offset}]
			if !ok {
				break
			}
			name, rest, _ := strings.Cut(value, "-")
			text, _, _ := strings.Cut(rest, "-")
			n, err := strconv.Atoi(text)
			if before, seen := last[name]; err != nil || seen && n <= before {
				v.bad("%s/%d: %q comes after number %d of its producer", plainTopic, p, value, before)
			}
			last[name] = n
		}
	}
}

// ledger: transactions are visible whole or not at all, as their clients were told.
func (v *verdict) ledger() {
	visible := v.visible.values(ledgerTopic)
	for value, n := range visible {
		if n != 1 || strings.HasPrefix(value, "orphan") {
			v.bad("%q is visible %d times", value, n)
		}
	}
	accounted := 0
	for _, tx := range v.st.transactions {
		seen := 0
		for at, value := range tx.at {
			if v.all[at] != value {
				v.bad("acknowledged as %q at %v, which holds %q", value, at, v.all[at])
			}
			seen += visible[value]
		}
		accounted += seen
		switch {
		case tx.outcome == committed && seen != len(tx.at):
			v.bad("of a committed transaction %d of %d records are visible: %v", seen, len(tx.at), tx.at)
		case tx.outcome == aborted && seen != 0:
			v.bad("of an aborted transaction %d of %d records are visible: %v", seen, len(tx.at), tx.at)
		case tx.outcome == unknown && seen != 0 && seen != len(tx.at):
			v.bad("of a transaction %d of %d records are visible: %v", seen, len(tx.at), tx.at)
		}
	}
	if accounted != len(visible) {
		v.bad("%d records of ledger are visible, %d belong to transactions", len(visible), accounted)
	}
}

// copies: copy holds every record of plain below the group's committed offsets, once, and nothing else.
func (v *verdict) copies(committed map[int32]int64) {
	got := v.visible.values(copyTopic)
	want := 0
	for at, value := range v.visible {
		if at.topic != plainTopic || at.offset >= committed[at.partition] {
			continue
		}
		want++
		copied := fmt.Sprintf("%d:%d:%s", at.partition, at.offset, value)
		if got[copied] != 1 {
			v.bad("%q was copied %d times, the group's offset is %d", copied, got[copied], committed[at.partition])
		}
	}
	if len(got) != want || want != len(v.st.acknowledged) {
		v.bad("%d copies, %d records below the group's offsets, %d acknowledged", len(got), want, len(v.st.acknowledged))
	}
}

// groupOffsets fetches the group's committed offsets.
func groupOffsets(st *storm, admin *kadm.Client) map[int32]int64 {
	st.t.Helper()
	offsets := map[int32]int64{}
	at, err := admin.FetchOffsets(within(st.t, patience), copiers)
	if err != nil {
		st.t.Fatal(err)
	}
	at.Each(func(o kadm.OffsetResponse) {
		if o.Topic == plainTopic {
			offsets[o.Partition] = o.At
		}
	})
	return offsets
}
