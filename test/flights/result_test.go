//go:build peers

package flights

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"testing"
	"time"

	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/test/peers"
	"github.com/twmb/avro/ocf"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	resultTopic = "daily-delays"
	partitions  = 4
)

// row is one line of the table.
type row struct {
	Origin        string `json:"origin" avro:"origin"`
	Day           string `json:"day" avro:"day"`
	Flights       int64  `json:"flights" avro:"flights"`
	Delayed       int64  `json:"delayed" avro:"delayed"`
	TotalDelayMin int64  `json:"total_delay_min" avro:"total_delay_min"`
	MaxDelayMin   int64  `json:"max_delay_min" avro:"max_delay_min"`
}

// table reads what the job must give.
func table(t *testing.T) map[row]bool {
	t.Helper()
	f, err := os.Open("../../examples/01-flights/testdata/daily-delays.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[row]bool)
	for _, l := range lines[1:] {
		r := row{Origin: l[0], Day: l[1]}
		for i, n := range []*int64{&r.Flights, &r.Delayed, &r.TotalDelayMin, &r.MaxDelayMin} {
			if _, err := fmt.Sscan(l[2+i], n); err != nil {
				t.Fatal(err)
			}
		}
		rows[r] = true
	}
	return rows
}

// same checks that got holds every row of the table once and nothing else.
func same(t *testing.T, what string, got []row) {
	t.Helper()
	want := table(t)
	seen := make(map[row]bool)
	for _, r := range got {
		if seen[r] || !want[r] {
			t.Fatalf("%s: row %+v: twice %v, in the table %v", what, r, seen[r], want[r])
		}
		seen[r] = true
	}
	if len(got) != len(want) {
		t.Fatalf("%s has %d rows, want %d", what, len(got), len(want))
	}
}

// topicRows reads a topic as a read_committed consumer.
func topicRows(t *testing.T, brokers string) []row {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.ConsumeTopics(resultTopic), kgo.KeepControlRecords(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, resultTopic)
	if err != nil {
		t.Fatal(err)
	}
	left := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	var rows []row
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := errors.Join(fetches.Err0(), ctx.Err()); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] { // the marker of the last transaction
				delete(left, r.Partition)
			}
			if !r.Attrs.IsControl() {
				var one row
				if err := json.Unmarshal(r.Value, &one); err != nil || string(r.Key) != one.Origin {
					t.Errorf("a record with key %q and value %q: %v", r.Key, r.Value, err)
				}
				rows = append(rows, one)
			}
		})
	}
	return rows
}

// blobRows reads all blobs of the result.
func blobRows(t *testing.T, store blob.Store) (rows []row, blobs int) {
	t.Helper()
	err := store.List(t.Context(), resultTopic+"/", func(e blob.Entry) error {
		if path.Ext(e.Name) != ".avro" {
			return nil
		}
		blobs++
		body, err := store.Read(t.Context(), e.Name)
		if err != nil {
			return err
		}
		defer body.Close()
		data, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		r, err := ocf.NewReader(bytes.NewReader(data))
		if err != nil {
			return err
		}
		defer r.Close()
		for {
			var one row
			if err := r.Decode(&one); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			rows = append(rows, one)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows, blobs
}

func folder(t *testing.T, data string) blob.Store {
	t.Helper()
	s, err := blob.OpenStore("file:" + filepath.ToSlash(filepath.Join(data, "blobs")))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// check compares both outputs with the table. Each task that was killed may have begun a blob more.
func check(t *testing.T, brokers string, store blob.Store, maxBlobs int) {
	t.Helper()
	same(t, "the topic", topicRows(t, brokers))
	rows, blobs := blobRows(t, store)
	same(t, "the blobs", rows)
	if blobs > maxBlobs {
		t.Errorf("%d blobs, want at most %d", blobs, maxBlobs)
	}
}

// checkData starts a broker over what an embedded one left, and checks.
func checkData(t *testing.T, data string, maxBlobs int) {
	t.Helper()
	b := peers.StartBroker(t, filepath.Join(data, "broker"))
	check(t, b.Addr, folder(t, data), maxBlobs)
	if err := b.Terminate(); err != nil {
		t.Error(err)
	}
}
