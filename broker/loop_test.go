package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/edge"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/record"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
)

// scriptedLoop answers Produce by a function, at once, as if decided and durable.
type scriptedLoop struct {
	board  *sequencer.Board
	answer func(*machine.Produce) *machine.ProduceReply
	done   chan struct{}
	once   sync.Once
	err    error
	lastID atomic.Uint64
	held   atomic.Int64 // operations whose buffers were not released
}

func newScriptedLoop() *scriptedLoop {
	return &scriptedLoop{
		board: sequencer.NewBoard(1, func(machine.PartitionID) *segment.Log { return nil }),
		done:  make(chan struct{}),
	}
}

func (l *scriptedLoop) Submit(op *sequencer.Operation) error {
	op.ID = l.lastID.Add(1)
	if op.Written != nil {
		l.held.Add(1)
	}
	// Deliver takes the connection's lock, which Submit's caller holds.
	go func() {
		op.Box.Deliver([]machine.Reply{{ID: op.ID, Body: l.answer(op.Body.(*machine.Produce))}})
		if op.Written != nil {
			op.Written()
			l.held.Add(-1)
		}
	}()
	return nil
}

func (l *scriptedLoop) Board() *sequencer.Board { return l.board }
func (l *scriptedLoop) Done() <-chan struct{}   { return l.done }
func (l *scriptedLoop) Err() error              { return l.err }

func (l *scriptedLoop) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.err
}

func (l *scriptedLoop) setTopic(version uint32, compression string) {
	s := machine.DefaultSettings()
	s.CompressionType = compression
	l.board.Publish([]machine.TopicChange{{Topic: machine.Topic{
		Name: "t", ID: [16]byte{1}, Settings: s, SettingsVersion: version,
	}}}, nil)
}

// serveScripted runs a broker over the loop and returns a connection to it.
func serveScripted(t *testing.T, l *scriptedLoop) (conn net.Conn, b *Broker, served chan error) {
	t.Helper()
	listening, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b = newBroker(Config{}.orDefaults(), []*listener{{Listener: listening}}, l, "cluster")
	served = make(chan error, 1)
	go func() { served <- b.Serve(context.Background()) }()
	if conn, err = net.Dial("tcp", listening.Addr().String()); err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() {
		conn.Close()
		b.Close()
	})
	return conn, b, served
}

func produceTwo(t *testing.T, conn net.Conn) []kmsg.ProduceResponseTopicPartition {
	t.Helper()
	builder := record.NewBuilder()
	builder.Add(time.Now().UnixMilli(), []byte("k"), []byte("v"))
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 9, -1
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "t"
	for i := range int32(2) {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = i, builder.Append(nil)
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1))
	var length [4]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(conn, frame); err != nil {
		t.Fatal(err)
	}
	resp := &kmsg.ProduceResponse{Version: 9}
	if err := resp.ReadFrom(frame[5:]); err != nil {
		t.Fatal(err)
	}
	return resp.Topics[0].Partitions
}

// TestStaleVerdictsAreJudgedAgain: only the batches that came back go again, from what the client sent, under the
// new settings.
func TestStaleVerdictsAreJudgedAgain(t *testing.T) {
	l := newScriptedLoop()
	l.setTopic(1, "gzip")
	asked := make(chan int, 10)
	l.answer = func(p *machine.Produce) *machine.ProduceReply {
		asked <- len(p.Partitions)
		r := &machine.ProduceReply{}
		for _, pp := range p.Partitions {
			out := machine.ProducePartitionReply{BaseOffset: int64(100 + 10*pp.Partition), LogAppendTimeMs: -1}
			if pp.Partition == 1 && pp.SettingsVersion != 2 {
				l.setTopic(2, "lz4")
				out = machine.ProducePartitionReply{Stale: true}
			} else if want := int8(pp.SettingsVersion*2 - 1); pp.Header.Codec() != want {
				t.Errorf("partition %d under settings %d has codec %d", pp.Partition, pp.SettingsVersion, pp.Header.Codec())
			}
			r.Partitions = append(r.Partitions, out)
		}
		return r
	}
	conn, b, _ := serveScripted(t, l)
	got := produceTwo(t, conn)
	for i, p := range got {
		if p.Partition != int32(i) || p.ErrorCode != 0 || p.BaseOffset != int64(100+10*i) {
			t.Errorf("partition %d: %+v", i, p)
		}
	}
	if rounds := len(asked); rounds != 2 || <-asked != 2 || <-asked != 1 {
		t.Errorf("the loop was asked %d times, want for 2 partitions and then for 1", rounds)
	}
	for deadline := time.Now().Add(20 * time.Second); l.held.Load() > 0 || b.admission.InUse() > 0; runtime.Gosched() {
		if time.Now().After(deadline) { // the release follows the answer
			t.Fatalf("%d operations and %d bytes are still held", l.held.Load(), b.admission.InUse())
		}
	}
}

func TestSettingsThatKeepChangingAreARetriableError(t *testing.T) {
	l := newScriptedLoop()
	l.setTopic(1, "producer")
	var rounds atomic.Int32
	l.answer = func(p *machine.Produce) *machine.ProduceReply {
		rounds.Add(1)
		r := &machine.ProduceReply{Partitions: make([]machine.ProducePartitionReply, len(p.Partitions))}
		for i := range r.Partitions {
			r.Partitions[i].Stale = true
		}
		return r
	}
	conn, _, _ := serveScripted(t, l)
	for _, p := range produceTwo(t, conn) {
		if p.ErrorCode != 6 || p.BaseOffset != -1 {
			t.Errorf("%+v", p)
		}
	}
	if n := rounds.Load(); n != edge.MaxJudgements {
		t.Errorf("%d rounds", n)
	}
}

// TestServeReturnsWhatStoppedTheLoop: a broker that stops says so and closes its connections at once.
func TestServeReturnsWhatStoppedTheLoop(t *testing.T) {
	l := newScriptedLoop()
	conn, b, served := serveScripted(t, l)
	l.err = errors.New("the disk is gone")
	l.once.Do(func() { close(l.done) })
	if err := <-served; !errors.Is(err, l.err) {
		t.Errorf("Serve returned %v", err)
	}
	if _, err := io.ReadAll(conn); err != nil {
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			t.Error("the connection is still open")
		}
	}
	if err := b.Close(); !errors.Is(err, l.err) {
		t.Errorf("Close returned %v", err)
	}
}
