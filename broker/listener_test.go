package broker_test

import (
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
)

func dialFrom(t testing.TB, from string, addr net.Addr) *rawClient {
	t.Helper()
	d := net.Dialer{}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	conn, err := d.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return &rawClient{t: t, conn: conn}
}

// addresses are all that a client is told of where the broker is.
func addresses(c *rawClient) map[string]string {
	c.t.Helper()
	told := map[string]string{}
	at := func(host string, port int32) string { return net.JoinHostPort(host, fmt.Sprint(port)) }

	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version, metadata.Topics = 12, []kmsg.MetadataRequestTopic{}
	for _, b := range ask[*kmsg.MetadataResponse](c, metadata).Brokers {
		told["Metadata"] += at(b.Host, b.Port)
	}
	for _, b := range ask[*kmsg.DescribeClusterResponse](c, kmsg.NewPtrDescribeClusterRequest()).Brokers {
		told["DescribeCluster"] += at(b.Host, b.Port)
	}
	for _, version := range []int16{0, 4} {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorKey, find.CoordinatorKeys = version, "g", []string{"g"}
		found := ask[*kmsg.FindCoordinatorResponse](c, find)
		if version >= 4 {
			found.Host, found.Port = found.Coordinators[0].Host, found.Coordinators[0].Port
		}
		told[fmt.Sprint("FindCoordinator ", version)] = at(found.Host, found.Port)
	}
	fetch := fetchRequest("t", 0, 0)
	fetch.Version, fetch.Topics[0].Partitions[0].CurrentLeaderEpoch = 16, 0
	for _, t := range c.topicIDs("t") {
		fetch.Topics[0].TopicID = t
	}
	for _, b := range ask[*kmsg.FetchResponse](c, fetch).Brokers {
		told["Fetch"] += at(b.Host, b.Port)
	}
	return told
}

func (c *rawClient) topicIDs(names ...string) (ids [][16]byte) {
	c.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	for _, name := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &name
		req.Topics = append(req.Topics, topic)
	}
	for _, t := range ask[*kmsg.MetadataResponse](c, req).Topics {
		ids = append(ids, t.TopicID)
	}
	return ids
}

// TestListeners: one broker, several addresses, the same data; each client is told the address by which it came.
func TestListeners(t *testing.T) {
	wanted := []broker.Listener{
		{Listen: "127.0.0.1:0"},
		{Listen: "127.0.0.1:0", Advertise: "broker.example:19092"},
		{Listen: "127.0.0.1:0", Advertise: "[2001:db8::7]:9"},
		{Listen: "[::1]:0"},
	}
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		l.Close()
	} else {
		t.Logf("no IPv6 here: %v", err)
		wanted = wanted[:3]
	}
	b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) { c.Listen, c.Listeners = "", wanted }))
	addrs := b.Addrs()
	if len(addrs) != len(wanted) || b.Addr() != addrs[0].String() {
		t.Fatalf("it listens on %v, first %s", addrs, b.Addr())
	}
	createTopic(dial(t, b), "t", 1)
	for i, w := range wanted {
		c := dialFrom(t, "", addrs[i])
		at := w.Advertise
		if at == "" {
			at = addrs[i].String()
		}
		want := map[string]string{"Metadata": at, "DescribeCluster": at, "FindCoordinator 0": at, "FindCoordinator 4": at, "Fetch": at}
		if diff := cmp.Diff(want, addresses(c)); diff != "" {
			t.Errorf("listener %d (-want +got):\n%s", i, diff)
		}
		produce(c, "t", 0, batchOf(1, fmt.Sprint(i)))
		if got := valuesOf(t, fetched(ask[*kmsg.FetchResponse](c, fetchRequest("t", 0, 0))).RecordBatches); len(got) != i+1 {
			t.Errorf("listener %d reads %q", i, got)
		}
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	for _, addr := range addrs {
		if conn, err := net.Dial("tcp", addr.String()); err == nil {
			conn.Close()
			t.Errorf("%s is still open", addr)
		}
	}
}

// TestListenersOpenTogether: if one address cannot be had, the others are given back.
func TestListenersOpenTogether(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	given, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, err = broker.New(broker.Config{Listeners: []broker.Listener{{Listen: taken.Addr().String()}, {Listener: given}}})
	if err == nil {
		t.Fatal("an address was taken twice")
	}
	if _, err := given.Accept(); err == nil {
		t.Error("the other listener is still open")
	}
}

func TestTooManyConnectionsFromOneAddress(t *testing.T) {
	b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) { c.Listen, c.MaxConnectionsPerAddress = "0.0.0.0:0", 2 }))
	_, port, _ := net.SplitHostPort(b.Addr())
	addr, err := net.ResolveTCPAddr("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	alive := func(c *rawClient) { ask[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest()) }
	first, second := dialFrom(t, "127.0.0.1", addr), dialFrom(t, "127.0.0.1", addr)
	alive(first)
	alive(second)
	dialFrom(t, "127.0.0.1", addr).expectClosed()
	if runtime.GOOS == "linux" { // elsewhere the loopback is one address
		alive(dialFrom(t, "127.0.0.2", addr))
	}
	first.conn.Close()
	eventually(t, "a place becomes free", func() bool {
		conn, err := net.Dial("tcp", addr.String())
		if err != nil {
			return false
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Second))
		conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1))
		n, _ := conn.Read(make([]byte, 4))
		return n > 0
	})
}
