//go:build peers

package differential

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// comparison walks two answers side by side.
type comparison struct {
	names  *names
	prefix string // of all names of this episode: lists of everything are cut down to it
	group  string // that the request is about
	epochs string // what kind of epochs the answer holds
	diffs  []string
}

// compare returns how two answers differ. What they name for the first time is remembered only if they agree.
func (n *names) compare(prefix string, req kmsg.Request, a, b kmsg.Response) []string {
	before := len(n.pairs)
	c := &comparison{names: n, prefix: prefix, epochs: "marker"}
	if f := reflect.ValueOf(req).Elem().FieldByName("Group"); f.IsValid() {
		c.group = f.String()
	}
	switch a.(type) {
	case *kmsg.InitProducerIDResponse, *kmsg.EndTxnResponse:
		c.epochs = "epoch"
	}
	c.value("", reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem())
	if len(c.diffs) > 0 {
		n.pairs = n.pairs[:before]
	}
	return c.diffs
}

func (c *comparison) differ(path string, a, b any) {
	c.diffs = append(c.diffs, fmt.Sprintf("%s: %v, Apache Kafka %v", path, a, b))
}

func (c *comparison) value(path string, a, b reflect.Value) {
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				c.differ(path, show(a), show(b))
			}
			return
		}
		c.value(path, a.Elem(), b.Elem())
	case reflect.Struct:
		c.fields(path, a, b)
	case reflect.Slice:
		c.slice(path, a, b)
	default:
		if a.Interface() != b.Interface() {
			c.differ(path, show(a), show(b))
		}
	}
}

func (c *comparison) fields(path string, a, b reflect.Value) {
	if f := a.FieldByName("Name"); f.IsValid() && f.Kind() == reflect.String && f.String() == "min.insync.replicas" {
		return // Apache Kafka sets it for the cluster when eligible leader replicas (KIP-966) are on
	}
	failed := false
	if f := a.FieldByName("ErrorCode"); f.IsValid() {
		failed = f.Int() != 0
	}
	ours := int64(-1)
	if f := a.FieldByName("ProducerID"); f.IsValid() {
		ours = f.Int()
	}
	for i := range a.NumField() {
		name := a.Type().Field(i).Name
		if failed && name == "ProducerID" {
			continue // 0 or -1, as it comes
		}
		c.field(path+"."+name, name, ours, a.Field(i), b.Field(i))
	}
}

// notCompared are fields that two brokers may fill as they like.
var notCompared = map[string]bool{
	"ThrottleMillis": true, "ErrorMessage": true, "BatchIndexErrorMessage": true, "UnknownTags": true,
	"Brokers": true, "CurrentLeader": true, "ClusterID": true, "ControllerID": true, "Host": true, "Port": true,
	// A leader epoch is the number of the start here, of the leader's election there; likewise a coordinator's.
	"LeaderEpoch": true, "CurrentLeaderEpoch": true, "CoordinatorEpoch": true,
	"Documentation": true, "AuthorizedOperations": true,
	"Dir": true, "TotalBytes": true, "UsableBytes": true, // of log folders
	"FinalizedFeaturesEpoch": true,
	"ConfigSynonyms":         true, // the broker's settings have names of their own there
}

func (c *comparison) field(path, name string, ours int64, a, b reflect.Value) {
	switch {
	case notCompared[name]:
	case name == "ProducerID":
		c.agree(path, "producer", 0, a.Int(), b.Int())
	case name == "ProducerEpoch":
		c.agree(path, c.epochs, ours, a.Int(), b.Int())
	case name == "Generation" && a.Int() > 0 && b.Int() > 0:
		c.agree(path, "generation of "+c.group, 0, a.Int(), b.Int())
	case (name == "MemberEpoch" || name == "Epoch" || name == "AssignmentEpoch") && a.Int() > 0:
		if a.Int()-firstEpochHere != b.Int()-firstEpochThere {
			c.differ(path, a.Int(), b.Int())
		}
	case name == "TopicID":
		c.agree(path, "topic", 0, a.Interface(), b.Interface())
	case name == "SessionID":
		c.agree(path, "session", 0, a.Int(), b.Int())
	case name == "MemberID" && a.Kind() == reflect.String, name == "LeaderID" && a.Kind() == reflect.String, name == "Leader" && a.Kind() == reflect.String:
		c.agree(path, "member", 0, a.String(), b.String())
	case strings.Contains(name, "Timestamp") || name == "LogAppendTime":
		if x, y := a.Int(), b.Int(); x != y && !(recent(x) && recent(y)) {
			c.differ(path, x, y)
		}
	case strings.HasSuffix(name, "ErrorCode"):
		if a.Interface() != b.Interface() {
			c.differ(path, code(a.Int()), code(b.Int()))
		}
	case name == "RecordBatches":
		c.batches(path, a.Bytes(), b.Bytes())
	default:
		c.value(path, a, b)
	}
}

func (c *comparison) agree(path, kind string, of int64, a, b any) {
	if !c.names.agree(kind, of, a, b) {
		c.differ(path, fmt.Sprintf("%v (%v there)", show(reflect.ValueOf(a)), show(reflect.ValueOf(c.names.theirs(kind, a)))), show(reflect.ValueOf(b)))
	}
}

// recent tells times that a broker took from its clock; the records' own lie years back.
func recent(ms int64) bool {
	return time.Since(time.UnixMilli(ms)).Abs() < time.Hour
}

func code(c int64) string {
	if c == 0 {
		return "NONE"
	}
	if err := kerr.TypedErrorForCode(int16(c)); err != nil {
		return err.Message
	}
	return fmt.Sprint(c)
}

// slice compares two lists as sets: both are sorted by what names their elements.
func (c *comparison) slice(path string, a, b reflect.Value) {
	if a.Type().Elem().Kind() == reflect.Uint8 {
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			c.differ(path, show(a), show(b))
		}
		return
	}
	as, bs := c.sorted(a, false), c.sorted(b, true)
	if len(as) != len(bs) {
		c.differ(path, show(a), show(b))
		return
	}
	for i := range as {
		c.value(fmt.Sprintf("%s[%s]", path, c.label(as[i], i)), as[i], bs[i])
	}
}

// label is what names an element in a message.
func (c *comparison) label(e reflect.Value, i int) string {
	if key := strings.Join(strings.Fields(strings.ReplaceAll(c.key(e, false), "\x00", " ")), " "); key != "" {
		return key
	}
	return fmt.Sprint(i)
}

// sorted returns the elements that belong to this episode, by name; names of Apache Kafka's are put into ours.
func (c *comparison) sorted(v reflect.Value, theirs bool) []reflect.Value {
	type named struct {
		key string
		v   reflect.Value
	}
	var all []named
	for i := range v.Len() {
		e := v.Index(i)
		if !c.ofAnother(e) {
			all = append(all, named{c.key(e, theirs), e})
		}
	}
	slices.SortStableFunc(all, func(x, y named) int { return cmp.Compare(x.key, y.key) })
	out := make([]reflect.Value, len(all))
	for i, n := range all {
		out[i] = n.v
	}
	return out
}

// ofAnother reports whether an element of a list of all groups or transactions belongs to another episode.
func (c *comparison) ofAnother(e reflect.Value) bool {
	var name string
	switch e := e.Interface().(type) {
	case kmsg.ListGroupsResponseGroup:
		name = e.Group
	case kmsg.ListConfigResourcesResponseConfigResource:
		name = e.Name
	case kmsg.ListTransactionsResponseTransactionState:
		name = e.TransactionalID
	default:
		return false
	}
	return !strings.HasPrefix(name, c.prefix)
}

func (c *comparison) key(e reflect.Value, theirs bool) string {
	if e.Kind() != reflect.Struct {
		if e.Kind() == reflect.Int32 || e.Kind() == reflect.Int64 {
			return fmt.Sprintf("%020d", e.Int())
		}
		return fmt.Sprint(e.Interface())
	}
	var key []string
	for _, name := range []string{"Topic", "Group", "TransactionalID", "ResourceName", "Name", "ApiKey", "TopicID", "Partition", "ProducerID", "MemberID", "FirstOffset", "ProducerEpoch"} {
		f := e.FieldByName(name)
		if !f.IsValid() || f.IsZero() && name == "TopicID" {
			continue
		}
		if f.Kind() == reflect.Pointer {
			if f.IsNil() {
				continue
			}
			f = f.Elem()
		}
		kind, mapped := map[string]string{"TopicID": "topic", "ProducerID": "producer", "MemberID": "member"}[name]
		switch {
		case name == "TopicID" && !theirs:
			key = append(key, fmt.Sprintf("%x", f.Interface()))
		case name == "TopicID":
			key = append(key, fmt.Sprintf("%x", c.names.ours(kind, f.Interface())))
		case mapped && theirs:
			key = append(key, fmt.Sprintf("%20v", c.names.ours(kind, f.Interface())))
		default:
			key = append(key, fmt.Sprintf("%20v", f.Interface()))
		}
	}
	return strings.Join(key, "\x00")
}

// ours is our name of what Apache Kafka calls b.
func (n *names) ours(kind string, b any) any {
	for _, p := range n.pairs {
		if p.kind == kind && p.b == b {
			return p.a
		}
	}
	return b
}

func (c *comparison) batches(path string, a, b []byte) {
	as, err := readBatches(a)
	if err != nil {
		c.differ(path, err, "")
		return
	}
	bs, err := readBatches(b)
	if err != nil {
		c.differ(path, "", err)
		return
	}
	for i := range max(len(as), len(bs)) {
		if i >= len(as) || i >= len(bs) {
			c.differ(path, as, bs)
			return
		}
		x, y := as[i], bs[i]
		c.agree(path, "producer", 0, x.producer, y.producer)
		if x.producer >= 0 {
			c.agree(path, c.epochs, x.producer, int64(x.epoch), int64(y.epoch))
		}
		y.producer, y.epoch = x.producer, x.epoch
		if x.attrs&attrControl != 0 {
			y.attrs &^= attrAppendTime // a marker's time is the broker's in any topic
		}
		if recent(x.max) && recent(y.max) {
			y.first, y.max = x.first, x.max
		}
		if x != y {
			c.differ(path, x, y)
			return
		}
	}
}

// codes gathers all error codes of an answer.
func codes(v reflect.Value, into map[int16]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			codes(v.Elem(), into)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			for i := range v.Len() {
				codes(v.Index(i), into)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name == "ErrorCode" {
				into[int16(v.Field(i).Int())] = true
				continue
			}
			codes(v.Field(i), into)
		}
	}
}
