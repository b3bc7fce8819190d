//go:build peers

package broker

import (
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// firstAnswer starts the process and returns how long it takes until it has answered a request.
func (s *server) firstAnswer() time.Duration {
	s.T.Helper()
	begin := time.Now()
	s.Launch()
	eventually(s.T, within(s.T, patience), "the first answer", func() (bool, error) {
		conn, err := net.Dial("tcp", s.Addr)
		if err != nil {
			return false, err
		}
		defer conn.Close()
		r := &raw{t: s.T, conn: conn}
		_, err = r.tryAsk(kmsg.NewPtrApiVersionsRequest())
		return err == nil, err
	})
	return time.Since(begin)
}

// TestFigures logs how long the broker takes to start, on nothing and after kill -9 with some hundred MiB. It asserts
// that everything is there; times are for the eye.
func TestFigures(t *testing.T) {
	s := start(t)
	ctx := within(t, patience)
	var times []time.Duration
	for range 5 {
		s.Kill()
		times = append(times, s.firstAnswer())
	}
	slices.Sort(times)
	t.Logf("exec to first answer, nearly no data: median %v, %v to %v; resident %d MiB", times[2], times[0], times[4], s.memory("VmRSS")>>20)

	const records, size = 4800, 64 << 10
	createTopic(t, ctx, s.Addr, "bulk", partitions)
	c := client(t, s.Addr, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(256))
	value := string(randomBytes(rand.New(rand.NewPCG(1, 1)), size))
	begin := time.Now()
	var failed error
	for n := range records {
		c.Produce(ctx, recordOf("bulk", int32(n%partitions), value), func(_ *kgo.Record, err error) { failed = errors.Join(failed, err) })
	}
	if err := errors.Join(c.Flush(ctx), failed); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	t.Logf("%d MiB written in %v, %.0f MiB/s; resident %d MiB", records*size>>20, took, records*size/took.Seconds()/(1<<20), s.memory("VmRSS")>>20)

	s.Kill()
	begin = time.Now()
	answered := s.firstAnswer()
	offset := int64(-1)
	one := client(t, s.Addr)
	r := recordOf("bulk", 0, "after")
	if err := one.ProduceSync(ctx, r).FirstErr(); err == nil {
		offset = r.Offset
	}
	t.Logf("after kill -9 with %d MiB: exec to first answer %v, to first acknowledged record %v; resident %d MiB",
		records*size>>20, answered, time.Since(begin), s.memory("VmRSS")>>20)
	if offset != records/partitions {
		t.Errorf("the record after the restart got offset %d, want %d", offset, records/partitions)
	}
	listed, err := listOffsets(ctx, one, "bulk")
	if err != nil {
		t.Fatal(err)
	}
	for p, o := range listed["bulk"] {
		if p > 0 && o.end != records/partitions {
			t.Errorf("partition %d ends at %d, want %d", p, o.end, records/partitions)
		}
	}
}
