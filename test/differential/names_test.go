//go:build peers

package differential

import (
	"encoding/binary"
	"hash/crc32"
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// pair is one thing that the two brokers name differently.
type pair struct {
	kind string // producer, topic, member; epoch: one that was given to a producer; marker: one that was only seen
	of   int64  // of an epoch: the producer id on our side
	a, b any    // the name on our side and on Apache Kafka's
}

// names holds what belongs together.
type names struct{ pairs []pair }

// agree reports whether a and b may name the same thing, and remembers it the first time.
func (n *names) agree(kind string, of int64, a, b any) bool {
	if nobody(kind, a) || nobody(kind, b) {
		return a == b
	}
	if kind == "epoch" || kind == "marker" {
		return n.agreeEpoch(kind, of, a.(int64), b.(int64))
	}
	for _, p := range n.pairs {
		if p.kind == kind && (p.a == a || p.b == b) {
			return p.a == a && p.b == b
		}
	}
	n.pairs = append(n.pairs, pair{kind, of, a, b})
	return true
}

// agreeEpoch compares by order. Two of ours may be one there: InitProducerId over an open transaction gives the epoch after
// that of the abort's markers here, there the same one if the client named its own.
func (n *names) agreeEpoch(kind string, of, a, b int64) bool {
	for _, p := range n.pairs {
		if p.kind != "epoch" && p.kind != "marker" || p.of != of {
			continue
		}
		if x, y := p.a.(int64), p.b.(int64); x == a && y != b || x < a && y > b || x > a && y < b {
			return false
		} else if p.kind == kind && x == a {
			return true
		}
	}
	n.pairs = append(n.pairs, pair{kind, of, a, b})
	return true
}

// nobody reports whether a name stands for nothing.
func nobody(kind string, a any) bool {
	if kind == "producer" || kind == "epoch" || kind == "marker" {
		return a.(int64) < 0
	}
	return reflect.ValueOf(a).IsZero()
}

// theirs is Apache Kafka's name of a thing that we call a; a thing that was never seen keeps its name.
func (n *names) theirs(kind string, a any) any {
	for _, p := range n.pairs {
		if p.kind == kind && p.a == a {
			return p.b
		}
	}
	return a
}

// theirEpoch is the epoch of a producer (our id) on Apache Kafka. One that was never given keeps its distance from the
// nearest one above it, else below it.
func (n *names) theirEpoch(producer, epoch int64) int64 {
	if epoch < 0 {
		return epoch
	}
	below, above := pair{a: int64(-1), b: int64(-1)}, pair{a: int64(1 << 20)}
	for _, p := range n.pairs {
		if p.kind != "epoch" || p.of != producer {
			continue
		}
		switch a := p.a.(int64); {
		case a <= epoch && a > below.a.(int64):
			below = p
		case a > epoch && a < above.a.(int64):
			above = p
		}
	}
	a, b := below.a.(int64), below.b.(int64)
	switch {
	case a == epoch:
		return b
	case above.b != nil:
		return max(above.b.(int64)-above.a.(int64)+epoch, b)
	case a < 0:
		return epoch
	}
	return min(epoch-a+b, 32767)
}

// translate returns the request as Apache Kafka must see it.
func (n *names) translate(req kmsg.Request) kmsg.Request {
	out := kmsg.RequestForKey(req.Key())
	out.SetVersion(req.GetVersion())
	if err := out.ReadFrom(req.AppendTo(nil)); err != nil {
		return req // a version that kmsg does not know: sent as it is
	}
	n.rewrite(reflect.ValueOf(out).Elem())
	return out
}

// The first epoch of a consumer group; they rise by one.
const firstEpochHere, firstEpochThere = 1, 2

func (n *names) rewrite(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			n.rewrite(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			n.rewrite(v.Index(i))
		}
	case reflect.Struct:
		producer := int64(-1)
		if f := v.FieldByName("ProducerID"); f.IsValid() {
			producer = f.Int()
		}
		if f, g := v.FieldByName("Generation"), v.FieldByName("Group"); f.IsValid() && g.IsValid() && f.Int() > 0 && !strings.HasSuffix(g.String(), "consumers") {
			f.SetInt(n.theirGeneration(g.String(), f.Int()))
		}
		if f, g := v.FieldByName("MemberEpoch"), v.FieldByName("Group"); f.IsValid() && g.IsValid() && f.Int() > 0 {
			f.SetInt(f.Int() + firstEpochThere - firstEpochHere)
		}
		if f, g := v.FieldByName("Generation"), v.FieldByName("Group"); f.IsValid() && g.IsValid() && f.Int() > 0 && strings.HasSuffix(g.String(), "consumers") {
			f.SetInt(f.Int() + firstEpochThere - firstEpochHere)
		}
		for i := range v.NumField() {
			n.rewriteField(v.Type().Field(i).Name, v.Field(i), producer)
		}
	}
}

func (n *names) rewriteField(name string, f reflect.Value, producer int64) {
	switch name {
	case "ProducerID":
		f.SetInt(n.theirs("producer", f.Int()).(int64))
	case "ProducerEpoch":
		f.SetInt(n.theirEpoch(producer, f.Int()))
	case "CoordinatorEpoch":
		f.SetInt(f.Int() - 1) // the number of the start, counted from 1 here, from 0 there
	case "ProducerIDFilters":
		for i := range f.Len() {
			f.Index(i).SetInt(n.theirs("producer", f.Index(i).Int()).(int64))
		}
	case "SessionID":
		f.SetInt(n.theirs("session", f.Int()).(int64))
	case "TopicID":
		f.Set(reflect.ValueOf(n.theirs("topic", f.Interface())))
	case "MemberID":
		if f.Kind() == reflect.String {
			f.SetString(n.theirs("member", f.String()).(string))
		}
	case "Records":
		f.SetBytes(n.rewriteBatch(f.Bytes()))
	default:
		n.rewrite(f)
	}
}

// theirGeneration is the generation of a group on Apache Kafka, which counts one more when the last member has left. One
// that was never given stays one that was never given.
func (n *names) theirGeneration(group string, generation int64) int64 {
	if b, ok := n.theirs("generation of "+group, generation).(int64); ok && b != generation {
		return b
	}
	for _, p := range n.pairs {
		if p.kind == "generation of "+group && p.a == generation {
			return generation
		}
	}
	return generation + 1000
}

// rewriteBatch puts Apache Kafka's producer id and epoch into a batch.
func (n *names) rewriteBatch(b []byte) []byte {
	if len(b) < 61 {
		return b
	}
	b = append([]byte(nil), b...)
	crc := binary.BigEndian.Uint32(b[17:])
	wrong := crc - crc32.Checksum(b[21:], castagnoli)
	producer, epoch := int64(binary.BigEndian.Uint64(b[43:])), int16(binary.BigEndian.Uint16(b[51:]))
	binary.BigEndian.PutUint64(b[43:], uint64(n.theirs("producer", producer).(int64)))
	binary.BigEndian.PutUint16(b[51:], uint16(n.theirEpoch(producer, int64(epoch))))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli)+wrong)
	return b
}
