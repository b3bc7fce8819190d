package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// heldConn takes a JoinGroup over and delivers it when pass is closed, as a slow network does, or not at all.
type heldConn struct {
	net.Conn
	held func() // called when a JoinGroup has come
	pass <-chan struct{}
	gone chan struct{}
	once sync.Once
}

func (c *heldConn) Write(p []byte) (int, error) {
	if len(p) > 6 && int16(binary.BigEndian.Uint16(p[4:])) == int16(kmsg.JoinGroup) {
		late := bytes.Clone(p)
		c.held()
		go func() {
			select {
			case <-c.pass:
				c.Conn.Write(late)
			case <-c.gone:
			}
		}()
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *heldConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}

// TestLeaveIsTheLastThatTheGroupHears: a member that ends while its JoinGroup is on its way must not be in the group
// afterwards. Nobody would be that member, and its tasks would lie there until its session expires.
func TestLeaveIsTheLastThatTheGroupHears(t *testing.T) {
	fake, _ := cluster(t, 2)
	joining, left := make(chan struct{}), make(chan struct{})
	held := sync.OnceFunc(func() { close(joining) })
	c, err := Open(t.Context(), Config{
		Brokers: fake.ListenAddrs(),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			var d net.Dialer
			nc, err := d.DialContext(ctx, network, address)
			return &heldConn{Conn: nc, held: held, pass: left, gone: make(chan struct{})}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	create(t, c, TopicSpec{Name: "in", Partitions: 1})
	fake.ControlKey(int16(kmsg.LeaveGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(left)
		return nil, nil, false
	})
	m, err := c.Join(MemberConfig{
		Group: "g", InstanceID: "slot", Stages: []StageInputs{{Stage: "s", Tasks: 1, Topics: []string{"in"}}},
		OnAssigned: func(Membership, []TopicPartition) { t.Error("tasks were assigned") },
		OnRevoked:  func([]TopicPartition) {}, OnLost: func([]TopicPartition) {},
		OnError: func(err error, final bool) { t.Errorf("%v, final %v", err, final) },
	})
	if err != nil {
		t.Fatal(err)
	}
	<-joining
	if err := m.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	groups, err := c.adm.DescribeGroups(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	if d := groups["g"]; len(d.Members) > 0 {
		t.Errorf("the group is %s with %d members", d.State, len(d.Members))
	}
}
