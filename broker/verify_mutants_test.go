//go:build mutants

package broker_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/broker/brokertest"
	"github.com/strandline-io/strandline/internal/mutant"
	"github.com/strandline-io/strandline/internal/vfs"
)

// TestVerifyStopsABrokerWhoseReplayDiffers: it says where and both hashes, and leaves what it had journaled.
func TestVerifyStopsABrokerWhoseReplayDiffers(t *testing.T) {
	mutant.Set("replay forgets the wall clock")
	defer mutant.Set("")
	disk := vfs.NewMem()
	b, err := broker.New(broker.Config{
		Listen: "127.0.0.1:0", DataDir: "verified", FS: disk, Verify: true,
		JournalSegmentBytes: smallJournal / 4, JournalMaxBytes: smallJournal,
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(t.Context()) }()
	conn, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	createTopic(&rawClient{t: t, conn: conn}, "t", 1)
	acknowledged := 0
	for request := produceFrame(strings.Repeat("x", 4000)); acknowledged < 10_000; acknowledged++ {
		var size [4]byte
		if _, err := conn.Write(request); err != nil {
			break
		} else if _, err := io.ReadFull(conn, size[:]); err != nil {
			break
		} else if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(size[:]))); err != nil {
			break
		}
	}
	err = <-ended
	want := regexp.MustCompile(`^unit \d+ in segment 1: .* hashes to [0-9a-f]{16}, replay to [0-9a-f]{16}; .*keep a copy`)
	if !errors.Is(err, broker.ErrDiverged) || !want.MatchString(err.Error()) {
		t.Fatalf("Serve returned %v", err)
	}
	if names, err := disk.List("journal"); err != nil || !strings.HasPrefix(strings.Join(names, " "), "0000000000000001-") {
		t.Errorf("%v: the segment that the error names is not the first of %q", err, names)
	}

	mutant.Set("")
	again := brokertest.Start(t, withSmallJournal(disk))
	expectRecords(t, dial(t, again), acknowledged)
}

func produceFrame(value string) []byte {
	return kmsg.NewRequestFormatter().AppendRequest(nil, produceRequest("t", 0, batchOf(1, value)), 7)
}
