package world

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchSession is what a client knows of its fetch session (KIP-227). It outlives connections, and the broker.
type fetchSession struct {
	id, epoch int32
	byID      bool
	cursors   []*cursor
	told      []int64 // the position that the broker knows of each
	losses    int
}

// useSession makes the whole request req one that goes on with the client's session, if there is one for cursors, or one
// that begins a session, or leaves it as it is. It reports whether it goes on.
func (c *client) useSession(req *kmsg.FetchRequest, version int16, cursors []*cursor) (goesOn bool) {
	s, byID := c.session, version >= 13
	if s == nil || s.byID != byID || version < 7 || s.losses != c.w.stats.PowerLosses || !slices.Equal(s.cursors, cursors) {
		c.session = nil
		if version >= 7 && c.w.chance(60) {
			req.SessionEpoch = 0
			c.session = &fetchSession{byID: byID, cursors: slices.Clone(cursors), told: positions(cursors), losses: c.w.stats.PowerLosses}
			if s != nil && c.w.chance(50) {
				req.SessionID = s.id // it is ended by the same request
			}
		}
		return false
	}
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	var changed []kmsg.FetchRequestTopic
	for i, u := range cursors {
		if u.offset != s.told[i] || c.w.chance(10) {
			changed = append(changed, req.Topics[i])
		}
	}
	req.Topics, s.told = changed, positions(cursors)
	return true
}

// answered takes the session's id from its first answer, and counts on.
func (s *fetchSession) answered(r *kmsg.FetchResponse) {
	if s != nil {
		s.id = r.SessionID
		s.epoch++
	}
}

func positions(cursors []*cursor) []int64 {
	all := make([]int64, len(cursors))
	for i, u := range cursors {
		all[i] = u.offset
	}
	return all
}
