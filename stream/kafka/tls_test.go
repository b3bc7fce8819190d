package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

func TestTLS(t *testing.T) {
	// The test server of net/http brings a certificate for 127.0.0.1.
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.TLS(&tls.Config{Certificates: server.TLS.Certificates}))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c, err := Open(t.Context(), Config{Brokers: fake.ListenAddrs(), TLS: &tls.Config{RootCAs: roots}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	create(t, c, TopicSpec{Name: "t", Partitions: 1})
	assigned := make(chan Membership, 1)
	m := join(t, c, "g", "slot", assigned)
	<-assigned
	if err := m.Leave(t.Context()); err != nil {
		t.Error(err)
	}
	_, err = Open(t.Context(), Config{Brokers: fake.ListenAddrs(), TLS: &tls.Config{}})
	if err == nil || !strings.Contains(err.Error(), "TLS with 127.0.0.1") {
		t.Errorf("an unknown authority: %v", err)
	}
}
