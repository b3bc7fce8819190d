package broker_test

import (
	"bytes"
	"encoding/hex"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
)

// TestGoldenFrames holds what goes over the wire, byte for byte.
func TestGoldenFrames(t *testing.T) {
	b := brokertest.Start(t)
	f := func(name, request, want string) {
		t.Helper()
		c := dial(t, b)
		frame, err := hex.DecodeString(strings.ReplaceAll(request, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		c.conn.Write(append([]byte{0, 0, 0, byte(len(frame))}, frame...))
		if got := hex.EncodeToString(c.frame()); got != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s:\n got %s\nwant %s", name, got, strings.ReplaceAll(want, " ", ""))
		}
	}
	// Key, version, correlation id, client id, body.
	f("ApiVersions of the future", "0012 0063 00000007 ffff 00",
		"00000007 0023 00000001 0012 0000 0004")
	f("a coordinator that does not exist", "000a 0003 00000008 0001 61 00 02 78 02 00",
		"00000008 00 00000000 002a"+compact("coordinators of type 2 do not exist here: 0 is groups, 1 transactions")+"ffffffff 01 ffffffff 00")
	f("Fetch with a session", "0001 000c 00000009 ffff 00"+
		"ffffffff 00000000 00000001 00000400 00 00000005 00000001 01 01 01 00",
		"00000009 00 00000000 0046 00000000 01 00")
	f("Fetch of nothing", "0001 0004 0000000a ffff"+
		"ffffffff 00000000 00000001 00000400 00 00000001 0001 78 00000001 00000000 0000000000000000 00000400",
		"0000000a 00000000 00000001 0001 78 00000001 00000000 0003 ffffffffffffffff ffffffffffffffff ffffffff 00000000")
	f("Produce before version 3", "0000 0002 0000000b ffff ffff 00000001 00000001 0001 78 00000001 00000004 00000000",
		"0000000b 00000001 0001 78 00000001 00000004 0023 ffffffffffffffff ffffffffffffffff 00000000")
	f("ListOffsets of nothing", "0002 0001 0000000c ffff ffffffff 00000001 0001 78 00000001 00000002 ffffffffffffffff",
		"0000000c 00000001 0001 78 00000001 00000002 0003 ffffffffffffffff ffffffffffffffff")
}

// compact is a compact string in hex.
func compact(s string) string { return hex.EncodeToString(append([]byte{byte(len(s) + 1)}, s...)) }

func TestApiVersionsOverTheWire(t *testing.T) {
	c := dial(t, brokertest.Start(t))
	for version := int16(0); version <= 4; version++ {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, "raw", "1"
		resp := ask[*kmsg.ApiVersionsResponse](c, req)
		if resp.ErrorCode != 0 || len(resp.ApiKeys) < 20 {
			t.Errorf("version %d: code %d, %d keys", version, resp.ErrorCode, len(resp.ApiKeys))
		}
	}
}

// TestNonsenseClosesTheConnection: nothing that a stranger sends gets more than a closed connection, and the broker
// goes on.
func TestNonsenseClosesTheConnection(t *testing.T) {
	b := brokertest.Start(t)
	f := func(name string, sent ...byte) {
		t.Helper()
		c := dial(t, b)
		c.conn.Write(sent)
		if rest := c.expectClosed(); len(rest) > 0 {
			t.Errorf("%s: answered with % x", name, rest)
		}
	}
	f("huge length", 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 3)
	f("negative length", 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 3)
	f("tiny length", 0, 0, 0, 2, 0, 0, 0, 0)
	f("unknown key", 0, 0, 0, 8, 0x12, 0x34, 0, 0, 0, 0, 0, 1)
	f("negative key", 0, 0, 0, 8, 0xff, 0xff, 0, 0, 0, 0, 0, 1)
	f("unserved key", 0, 0, 0, 10, 0, 36, 0, 0, 0, 0, 0, 1, 0xff, 0xff)
	f("unknown version", 0, 0, 0, 8, 0, 3, 0, 99, 0, 0, 0, 1)
	f("negative version", 0, 0, 0, 8, 0, 3, 0xff, 0xff, 0, 0, 0, 1)
	f("empty body", 0, 0, 0, 10, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff)
	f("body that announces too much", 0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff)
	f("bad client id", 0, 0, 0, 10, 0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff)
	f("HTTP", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")...)
	f("TLS", 0x16, 0x03, 0x01, 0x00, 0xc8, 0x01, 0x00, 0x00)

	ask[*kmsg.ApiVersionsResponse](dial(t, b), kmsg.NewPtrApiVersionsRequest())
}

// FuzzConnection sends arbitrary bytes to one broker, which must survive all of them.
func FuzzConnection(f *testing.F) {
	f.Add([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff})
	for _, req := range []kmsg.Request{
		fetchRequest("t", 0, 0), produceRequest("t", 0, batchOf(1, "a", "b")), kmsg.NewPtrJoinGroupRequest(),
		kmsg.NewPtrMetadataRequest(), kmsg.NewPtrListOffsetsRequest(), kmsg.NewPtrCreateTopicsRequest(),
		kmsg.NewPtrOffsetFetchRequest(), kmsg.NewPtrEndTxnRequest(),
	} {
		f.Add(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1))
	}
	network := brokertest.NewNetwork()
	brokertest.Start(f, brokertest.On(network, "broker:1"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		conn, err := network.DialContext(t.Context(), "", "broker:1")
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		conn.Write(sent)
		conn.Close()
		probe, err := network.DialContext(t.Context(), "", "broker:1")
		if err != nil {
			t.Fatal(err)
		}
		defer probe.Close()
		probe.SetDeadline(time.Now().Add(patience))
		ask[*kmsg.ApiVersionsResponse](&rawClient{t: t, conn: probe}, kmsg.NewPtrApiVersionsRequest())
	})
}

func TestTooManyConnectionsAreClosed(t *testing.T) {
	b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) { c.MaxConnections = 2 }))
	first, second := dial(t, b), dial(t, b)
	ask[*kmsg.ApiVersionsResponse](first, kmsg.NewPtrApiVersionsRequest())
	ask[*kmsg.ApiVersionsResponse](second, kmsg.NewPtrApiVersionsRequest())
	dial(t, b).expectClosed()
	first.conn.Close()
	eventually(t, "a place becomes free", func() bool {
		conn, err := net.Dial("tcp", b.Addr())
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

// TestLogsSayWhyAndAreBounded: an operator sees what was wrong, and a stranger cannot fill the disk with it.
func TestLogsSayWhyAndAreBounded(t *testing.T) {
	var log syncBuffer
	b := brokertest.Start(t, brokertest.Configure(func(c *broker.Config) {
		c.Logger = log.logger()
		c.Now = func() time.Time { return time.Unix(1_700_000_000, 0) }
	}))
	for range 50 { // these are not worth a word
		leaving := dial(t, b)
		poll := fetchRequest("nothing", 0, 0)
		poll.MaxWaitMillis = 60_000
		leaving.send(poll)
		leaving.conn.(*net.TCPConn).SetLinger(0)
		leaving.conn.Close()
	}
	for range 50 {
		c := dial(t, b)
		c.conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		c.expectClosed()
	}
	eventually(t, "the log tells of HTTP", func() bool { return bytes.Contains(log.bytes(), []byte("looks like HTTP")) })
	if bytes.Contains(log.bytes(), []byte("reset by peer")) {
		t.Errorf("clients that left are told of:\n%s", log.bytes())
	}
	if lines := bytes.Count(log.bytes(), []byte("\n")); lines > 10 {
		t.Errorf("%d lines for 50 bad connections within one second", lines)
	}
}

func TestMetadataNamesTheAddressThatTheClientReached(t *testing.T) {
	f := func(address string, options ...brokertest.Option) {
		t.Helper()
		b := brokertest.Start(t, options...)
		if address == "" {
			address = b.Addr()
		}
		c := dial(t, b)
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 12
		req.Topics = []kmsg.MetadataRequestTopic{}
		resp := ask[*kmsg.MetadataResponse](c, req)
		host, port, _ := net.SplitHostPort(address)
		want := kmsg.NewMetadataResponseBroker()
		want.NodeID, want.Host = 1, host
		for _, digit := range port {
			want.Port = want.Port*10 + digit - '0'
		}
		if diff := cmp.Diff([]kmsg.MetadataResponseBroker{want}, resp.Brokers, ignoreTags); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if resp.ControllerID != 1 || resp.ClusterID == nil || *resp.ClusterID != b.ClusterID() || len(*resp.ClusterID) != 22 {
			t.Errorf("controller %d, cluster %v", resp.ControllerID, resp.ClusterID)
		}
		cluster := ask[*kmsg.DescribeClusterResponse](c, kmsg.NewPtrDescribeClusterRequest())
		if cluster.ErrorCode != 0 || cluster.Brokers[0].Host != host || cluster.ClusterID != b.ClusterID() {
			t.Errorf("DescribeCluster: %+v", cluster)
		}
	}
	f("")
	f("example.org:1234", brokertest.Configure(func(c *broker.Config) { c.Advertise = "example.org:1234" }))
}

var ignoreTags = cmp.Comparer(func(a, b kmsg.Tags) bool { return a.Len() == b.Len() })
