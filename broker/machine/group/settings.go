package group

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline-io/strandline/broker/machine/codec"
)

// Setting is one configuration entry as a client wrote it.
type Setting struct{ Name, Value string }

// Names of the group settings that act.
const (
	SettingSessionTimeout     = "consumer.session.timeout.ms"
	SettingHeartbeatInterval  = "consumer.heartbeat.interval.ms"
	SettingAssignmentInterval = "consumer.assignment.interval.ms"
)

// groupSettings are a group's settings, at least one, ascending by name.
type groupSettings struct {
	entries []Setting
	hash    uint64
}

func (s *groupSettings) sizeBytes(name string) int64 {
	n := overheadBytes + len(name)
	for _, e := range s.entries {
		n += len(e.Name) + len(e.Value) + 2*stringBytes
	}
	return int64(n)
}

// Settings are what clients have set for a group, ascending by name; nil for nothing. They stay the caller's to read.
func (gs *Groups) Settings(name string) []Setting {
	if s, ok := gs.settings.Get(name); ok {
		return s.entries
	}
	return nil
}

// Configured names the groups that have settings, ascending.
func (gs *Groups) Configured() []string { return gs.settings.Keys() }

// SetSettings gives a group these settings in the place of what it had, the caller having checked them. It returns
// POLICY_VIOLATION beyond the bounds of groups or memory, INVALID_GROUP_ID for a name that is too long.
func (gs *Groups) SetSettings(ctx Context, name string, entries []Setting) int16 {
	old, had := gs.settings.Get(name)
	next := &groupSettings{entries: slices.SortedFunc(slices.Values(entries), func(a, b Setting) int { return cmp.Compare(a.Name, b.Name) })}
	grows := int(next.sizeBytes(name))
	if had {
		grows -= int(old.sizeBytes(name))
	}
	switch {
	case len(entries) == 0 && !had || had && slices.Equal(old.entries, next.entries):
		return 0
	case len(name) > maxNameBytes:
		return kerr.InvalidGroupID.Code
	case len(entries) > 0 && (!had && gs.settings.Len() >= gs.cfg.MaxGroups || !gs.mayGrow(grows)):
		return kerr.PolicyViolation.Code
	}
	gs.record(ctx, kindSettings, &settingsRecord{name, next.entries})
	return 0
}

// within is a setting that acts, between the bounds that the broker has now: they may have changed since it was set.
func (gs *Groups) within(group, name string, standard, low, high int32) int32 {
	for _, e := range gs.Settings(group) {
		if e.Name != name {
			continue
		}
		if v, err := strconv.ParseInt(e.Value, 10, 32); err == nil {
			return min(max(int32(v), low), high)
		}
	}
	return standard
}

func (gs *Groups) sessionTimeoutMs(group string) int32 {
	return gs.within(group, SettingSessionTimeout, gs.cfg.ConsumerSessionTimeoutMs, gs.cfg.ConsumerMinSessionTimeoutMs, gs.cfg.ConsumerMaxSessionTimeoutMs)
}

func (gs *Groups) heartbeatIntervalMs(group string) int32 {
	return gs.within(group, SettingHeartbeatInterval, gs.cfg.ConsumerHeartbeatMs, gs.cfg.ConsumerMinHeartbeatMs, gs.cfg.ConsumerMaxHeartbeatMs)
}

func (gs *Groups) assignmentIntervalMs(group string) int32 {
	return gs.within(group, SettingAssignmentInterval, gs.cfg.AssignmentIntervalMs, gs.cfg.ConsumerMinAssignmentIntervalMs, gs.cfg.ConsumerMaxAssignmentIntervalMs)
}

type settingsRecord struct {
	group   string
	entries []Setting
}

func (rec *settingsRecord) append(b []byte) []byte {
	b = codec.AppendString(b, rec.group)
	b = binary.AppendUvarint(b, uint64(len(rec.entries)))
	for _, e := range rec.entries {
		b = codec.AppendString(codec.AppendString(b, e.Name), e.Value)
	}
	return b
}

func readSettings(r *reader) settingsRecord {
	rec := settingsRecord{group: r.String()}
	for i := range r.Count(2) {
		e := Setting{Name: r.String(), Value: r.String()}
		if i > 0 && e.Name <= rec.entries[i-1].Name {
			r.Fail("setting %q after %q of group %q", e.Name, rec.entries[i-1].Name, rec.group)
			return rec
		}
		rec.entries = append(rec.entries, e)
	}
	return rec
}

func (gs *Groups) applySettings(r *reader) error {
	rec := readSettings(r)
	if err := r.End(); err != nil {
		return err
	}
	gs.setSettings(&rec)
	return nil
}

func (gs *Groups) setSettings(rec *settingsRecord) {
	if old, ok := gs.settings.Delete(rec.group); ok {
		gs.sum -= old.hash
		gs.sizeBytes -= old.sizeBytes(rec.group)
	}
	if len(rec.entries) == 0 {
		return
	}
	s := &groupSettings{entries: rec.entries}
	gs.hashBuf = rec.append(append(gs.hashBuf[:0], 'S'))
	s.hash = hashBytes(gs.hashBuf)
	gs.sum += s.hash
	gs.sizeBytes += s.sizeBytes(rec.group)
	gs.settings.Set(rec.group, s)
}

func (gs *Groups) appendSettings(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(gs.settings.Len()))
	gs.settings.Scan(func(name string, s *groupSettings) bool {
		dst = (&settingsRecord{name, s.entries}).append(dst)
		return true
	})
	return dst
}

func (gs *Groups) restoreSettings(r *reader) {
	last := ""
	for i := range r.Count(2) {
		rec := readSettings(r)
		if i > 0 && rec.group <= last || len(rec.entries) == 0 {
			r.Fail("settings of group %q after %q", rec.group, last)
		}
		if r.Err() != nil {
			return
		}
		last = rec.group
		gs.setSettings(&rec)
	}
}
