package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// finishFindCoordinator adds the address to every coordinator that the loop has named. Version 4 and later name many
// (KIP-699).
func finishFindCoordinator(c *conn, s *slot) (kmsg.Response, error) {
	r, err := finishLoop(c, s)
	if err != nil {
		return nil, err
	}
	resp := r.(*kmsg.FindCoordinatorResponse)
	if s.header.Version < 4 && resp.ErrorCode == 0 {
		resp.Host, resp.Port = c.reach.host, c.reach.port
	}
	for i := range resp.Coordinators {
		if k := &resp.Coordinators[i]; k.ErrorCode == 0 {
			k.Host, k.Port = c.reach.host, c.reach.port
		}
	}
	return resp, nil
}
