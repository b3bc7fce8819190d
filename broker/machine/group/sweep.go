package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// sweepSteps bounds one step of the expiry, in offsets and groups looked at.
	sweepSteps = 512
	// sweepPauseMs lies between two steps of a round.
	sweepPauseMs = 10
	// consumerProtocol is the protocol type whose subscriptions name topics.
	consumerProtocol = "consumer"
)

// sweep is how far the present round of expiry has come. The place need not exist any more.
type sweep struct {
	timer     timer
	group     string
	topic     string
	partition int32 // the last one looked at, -1 before the first
}

// sweepOffsets takes the next step: offsets that nobody used for the retention time go, and groups with nothing left.
func (gs *Groups) sweepOffsets(ctx Context) {
	sw := &gs.sweep
	for steps := sweepSteps; steps > 0; {
		g := gs.groupFrom(sw.group)
		if g == nil {
			sw.group, sw.topic, sw.partition = "", "", -1
			gs.timers.set(&sw.timer, ctx.EngineMs()+gs.cfg.OffsetsCheckMs)
			return
		}
		if g.name != sw.group {
			sw.group, sw.topic, sw.partition = g.name, "", -1
		}
		steps--
		if gs.sweepGroup(ctx, g, &steps) {
			// The least name above this one.
			sw.group, sw.topic, sw.partition = g.name+"\x00", "", -1
		}
	}
	gs.timers.set(&sw.timer, ctx.EngineMs()+sweepPauseMs)
}

func (gs *Groups) groupFrom(name string) *group {
	var found *group
	gs.groups.Ascend(name, func(_ string, g *group) bool {
		found = g
		return false
	})
	return found
}

// sweepGroup looks at one group, from the sweep's place on; done is false if steps ran out first.
func (gs *Groups) sweepGroup(ctx Context, g *group, steps *int) (done bool) {
	sw := &gs.sweep
	done = true
	rec := &offsetsRemovedRecord{group: g.name}
	g.saved.topics.Ascend(sw.topic, func(name string, t *topicOffsets) bool {
		if name != sw.topic {
			sw.topic, sw.partition = name, -1
		}
		var gone []int32
		i, found := t.find(sw.partition)
		if found {
			i++
		}
		for ; i < len(t.entries) && *steps > 0; i++ {
			*steps--
			sw.partition = t.entries[i].partition
			if gs.expired(ctx, g, t, t.entries[i]) {
				gone = append(gone, t.entries[i].partition)
			}
		}
		if len(gone) > 0 {
			rec.topics = append(rec.topics, topicPartitions{name, gone})
		}
		done = i == len(t.entries)
		return done
	})
	if len(rec.topics) > 0 {
		gs.record(ctx, kindOffsetsRemoved, rec)
	}
	if l := &g.live; done && g.saved.exists && g.empty() && l.pending.Len() == 0 && g.saved.offsets == 0 {
		gs.record(ctx, kindGroupRemoved, &groupRecord{g.name})
	}
	return done
}

// expired tells whether an offset is past its retention, whose clock starts as kafka-eos.md D.6 says. What an open
// transaction may still commit never expires.
func (gs *Groups) expired(ctx Context, g *group, t *topicOffsets, e *offsetEntry) bool {
	if e.committed == nil || len(e.pending) > 0 {
		return false
	}
	sinceMs := e.committed.commitMs
	switch {
	case g.hasConsumers():
		if g.saved.consumer.subscribes(t.name) {
			return false
		}
	case g.live.phase == phaseEmpty:
		if g.saved.protocolType != "" {
			sinceMs = max(sinceMs, g.saved.sinceMs)
		}
	case g.live.phase == phaseStable && g.saved.protocolType == consumerProtocol:
		topics, ok := g.subscriptions()
		if _, subscribed := topics[t.name]; subscribed || !ok {
			return false
		}
	default:
		return false
	}
	if e.committed.expireMs >= 0 {
		return ctx.WallMs() >= e.committed.expireMs
	}
	return ctx.WallMs()-sinceMs >= gs.cfg.OffsetsRetentionMs
}

// subscriptions returns the topics that members of a stable consumer group subscribe to; ok is false if one of them
// cannot be understood, then nothing expires.
func (g *group) subscriptions() (topics map[string]struct{}, ok bool) {
	l := &g.live
	if l.subscribedOK {
		return l.subscribed, l.subscribed != nil
	}
	l.subscribedOK, l.subscribed = true, map[string]struct{}{}
	l.members.Scan(func(_ string, m *member) bool {
		var sub kmsg.ConsumerMemberMetadata
		if err := sub.ReadFrom(m.info.metadata(g.saved.protocol)); err != nil {
			l.subscribed = nil
			return false
		}
		for _, topic := range sub.Topics {
			l.subscribed[topic] = struct{}{}
		}
		return true
	})
	return l.subscribed, l.subscribed != nil
}
