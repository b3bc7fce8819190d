//go:build peers

package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/blob/blobtest"
	"github.com/strandline-io/strandline/stream/streamtest"
	"github.com/twmb/avro/ocf"
)

type row struct {
	N    int64  `avro:"n"`
	Text string `avro:"text"`
}

var job = stream.JobIdentity{Job: "job", Run: "run-1"}

func record(n int64) stream.SinkRecord {
	return stream.SinkRecord{Value: row{N: n, Text: fmt.Sprintf("row %d", n)}, TimestampMs: 1_704_164_645_000 + n*1000, RowSequence: n}
}

// visible returns the rows of all Avro files of a store.
func visible(s blob.Store) ([]string, error) {
	var rows []string
	err := s.List(context.Background(), "", func(e blob.Entry) error {
		if !strings.HasSuffix(e.Name, ".avro") {
			return nil
		}
		r, err := s.Read(context.Background(), e.Name)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		file, err := ocf.NewReader(bytes.NewReader(data))
		if err != nil {
			return err
		}
		defer file.Close()
		for {
			var v row
			if err := file.Decode(&v); err == io.EOF {
				return nil
			} else if err != nil {
				return fmt.Errorf("%s: %w", e.Name, err)
			}
			rows = append(rows, v.Text)
		}
	})
	return rows, err
}

func TestStoreContract(t *testing.T) {
	a := startAzurite(t)
	blobtest.TestStore(t, func(t *testing.T) blob.Store { return a.open(t, newContainer()+"/some/prefix") })
}

type place struct {
	store   blob.Store
	options []blob.Option
}

func (p *place) Open() stream.Sink {
	return blob.New("out", p.store, append([]blob.Option{blob.WithType[row]()}, p.options...)...)
}
func (p *place) Visible() ([]string, error)  { return visible(p.store) }
func (p *place) Row(n int) stream.SinkRecord { return record(int64(n)) }
func (p *place) RowText(n int) string        { return fmt.Sprintf("row %d", n) }

func TestSinkContract(t *testing.T) {
	a := startAzurite(t)
	name, n := newContainer(), 0
	streamtest.TestSink(t, func(t *testing.T) streamtest.SinkUnderTest {
		n++
		return &place{store: a.open(t, fmt.Sprintf("%s/%d", name, n)), options: []blob.Option{func(c *blob.Config) {
			c.MaxRows, c.BlockBytes, c.AvroBlockBytes = int64(n%8), 1+n%50, 1+n%40
		}}}
	})
}

// TestMessages: what is wrong, and what to do.
func TestMessages(t *testing.T) {
	a := startAzurite(t)
	check := func(s blob.Store) error {
		return blob.New("out", s, blob.WithType[row]()).Check(t.Context(), job)
	}
	f := func(s blob.Store, want ...string) {
		t.Helper()
		start := time.Now()
		err := check(s)
		if err == nil {
			t.Fatalf("no error, want %q", want)
		}
		for _, w := range append(want, "azblob://"+blob.AzuriteAccount) {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v\nlacks %q", err, w)
			}
		}
		if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), blob.AzuriteKey) || time.Since(start) > 10*time.Second {
			t.Errorf("after %v: %q", time.Since(start), err)
		}
		t.Log(err)
	}
	const wrongKey = "d3Jvbmc="
	f(a.open(t, newContainer(), blob.EnvKey, wrongKey), "HTTP 403", "AZURE_STORAGE_KEY", "wrong")
	missing := newContainer()
	f(a.open(t, missing+"?create=false"), "the container does not exist", fmt.Sprintf("create container %q", missing))
	f(a.open(t, missing, blob.EnvSAS, a.sas(t, missing)), "does not exist and these credentials may not create it", "az storage container create")
	if err := check(a.open(t, missing)); err != nil { // a missing container is created
		t.Error(err)
	}
	if err := check(a.open(t, missing+"?create=false")); err != nil {
		t.Error(err)
	}
	if err := check(a.open(t, missing, blob.EnvSAS, a.sas(t, missing))); err != nil {
		t.Error(err)
	}
	connection := "AccountName=" + blob.AzuriteAccount + ";AccountKey=" + blob.AzuriteKey + ";BlobEndpoint=" + a.endpoint
	if err := check(a.open(t, newContainer(), blob.EnvConnectionString, connection)); err != nil {
		t.Error(err)
	}
	a.Kill()
	f(a.open(t, missing), "nothing listens at "+a.endpoint)
}

// sas makes a signature with just the permissions that the documentation asks for.
func (a *azurite) sas(t *testing.T, name string) string {
	t.Helper()
	cred, err := service.NewSharedKeyCredential(blob.AzuriteAccount, blob.AzuriteKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := container.NewClientWithSharedKeyCredential(a.endpoint+"/"+name, cred, nil)
	if err != nil {
		t.Fatal(err)
	}
	url, err := c.GetSASURL(sas.ContainerPermissions{Read: true, Create: true, Write: true, List: true}, time.Now().Add(time.Hour), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, query, _ := strings.Cut(url, "?")
	return query
}

// outage is one task over a service that dies.
type outage struct {
	a               *azurite
	sink            *blob.Sink
	w               stream.SinkWriter
	token           []byte
	committed, next int64
}

func (o *outage) restore(ctx context.Context) error {
	if o.w != nil {
		o.w.Close()
	}
	var err error
	if o.w, err = o.sink.Open(ctx, stream.SinkTask{JobIdentity: job, Sink: "out", Task: "stage-0"}); err != nil {
		return err
	}
	o.next = o.committed
	return o.w.Restore(ctx, o.token)
}

// epoch writes 50 rows in a transaction. After every other one the service ends before the blobs are published: by its
// own will, because a killed Azurite forgets what it has.
func (o *outage) epoch(ctx context.Context) error {
	for range 50 {
		if err := o.w.Write(ctx, record(o.next)); err != nil {
			return err
		}
		o.next++
	}
	token, err := o.w.Prepare(ctx, o.next)
	if err != nil {
		return err
	}
	o.token, o.committed = token, o.next
	if o.next%100 == 0 {
		_ = o.a.Terminate()
	}
	return o.w.Commit(ctx, o.token)
}

// TestOutage: the service dies and comes back; no row is lost or double.
func TestOutage(t *testing.T) {
	a := startAzurite(t)
	s := blob.New("out", a.open(t, newContainer()), blob.WithType[row](), func(c *blob.Config) {
		c.MaxRows, c.BlockBytes, c.AvroBlockBytes = 70, 400, 100
		c.Tries, c.CallTimeout, c.PrepareTimeout = 2, 2*time.Second, 5*time.Second
	})
	if err := s.Check(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	o := &outage{a: a, sink: s}
	if err := o.restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	outages := 0
	for o.committed < 500 {
		err := o.epoch(t.Context())
		if err == nil {
			continue
		}
		if !errors.Is(err, blob.ErrTemporary) || !strings.Contains(err.Error(), "nothing listens at") {
			t.Fatalf("an outage is reported as %v", err)
		}
		outages++
		if err := o.restore(t.Context()); err == nil {
			t.Fatal("restored without a service")
		}
		a.again(t)
		if err := o.restore(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	o.w.Finish()
	last, err := o.w.Prepare(t.Context(), 1)
	if err == nil {
		err = o.w.Commit(t.Context(), last)
	}
	if err = errors.Join(err, o.w.Close()); err != nil {
		t.Fatal(err)
	}
	rows, err := visible(s.Store())
	if err != nil || outages < 4 {
		t.Fatal(err, outages)
	}
	slices.Sort(rows)
	if n := len(rows); n != 500 || len(slices.Compact(rows)) != n {
		t.Errorf("%d rows, %d different", n, len(slices.Compact(rows)))
	}
}

// TestLargeBlocks stages real block sizes in the background, as production does.
func TestLargeBlocks(t *testing.T) {
	a := startAzurite(t)
	s := blob.New("out", a.open(t, newContainer()), blob.WithType[row](), blob.WithCodec(blob.Null))
	if err := s.Check(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	w, err := s.Open(t.Context(), stream.SinkTask{JobIdentity: job, Sink: "out", Task: "stage-0"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	pad := strings.Repeat("x", 1<<10)
	const rows = 64 << 10
	start := time.Now()
	for n := range int64(rows) {
		r := stream.SinkRecord{Value: row{N: n, Text: pad}, TimestampMs: 1_704_164_645_000, RowSequence: n}
		if err := w.Write(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	w.Finish()
	token, err := w.Prepare(t.Context(), 1)
	if err == nil {
		err = w.Commit(t.Context(), token)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB in %v", rows>>10, time.Since(start))
	got, err := visible(s.Store())
	if err != nil || len(got) != rows {
		t.Errorf("%d rows, %v", len(got), err)
	}
}
