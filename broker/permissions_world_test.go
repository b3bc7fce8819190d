package broker_test

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/broker/record"
)

// permissionWorld has something of each kind: topic t, group g with offsets, group members with a member, and transactional id pay
// with a transaction that is open.
type permissionWorld struct {
	c     *rawClient
	words *strings.Replacer
}

func prepare(c *rawClient) *permissionWorld {
	c.t.Helper()
	id := createTopic(c, "t", 2)
	list, err := json.Marshal(id)
	if err != nil {
		c.t.Fatal(err)
	}
	w := &permissionWorld{c: c, words: strings.NewReplacer()}
	produce(c, "t", 0, batchOf(1, "a"))
	init := w.request(22, 5, `{"TransactionalID":"pay","TransactionTimeoutMillis":900000,"ProducerID":-1,"ProducerEpoch":-1}`).(*kmsg.InitProducerIDResponse)
	b := record.NewBuilder()
	b.Transactional, b.ProducerID, b.ProducerEpoch, b.BaseSequence = true, init.ProducerID, init.ProducerEpoch, 0
	b.Add(1, nil, []byte("b"))
	transactional := b.Append(nil)
	w.words = strings.NewReplacer(`:ID`, `:`+string(list), `:PID`, `:`+strconv.FormatInt(init.ProducerID, 10),
		"PLAIN", quoted(batchOf(1, "c")), "TRANSACTIONAL", quoted(transactional))
	w.request(0, 12, produceTransactional)
	w.request(28, 5, txnOffsetCommit)
	w.request(8, 9, `{"Group":"g","Generation":-1,"Topics":[{"Topic":"t","Partitions":[{"Offset":7,"LeaderEpoch":-1}]}]}`)
	w.request(68, 1, `{"Group":"members","MemberID":"m","RebalanceTimeoutMillis":10000,"SubscribedTopicNames":["t"],"Topics":[]}`)
	return w
}

func quoted(b []byte) string { return `"` + base64.StdEncoding.EncodeToString(b) + `"` }

// request sends a request that is written as JSON.
func (w *permissionWorld) request(key, version int16, body string) kmsg.Response {
	w.c.t.Helper()
	req := kmsg.RequestForKey(key)
	if err := json.Unmarshal([]byte(w.words.Replace(body)), req); err != nil {
		w.c.t.Fatalf("%s: %v", kmsg.NameForKey(key), err)
	}
	req.SetVersion(version)
	return ask[kmsg.Response](w.c, req)
}

// picture is all that there is to see.
func (w *permissionWorld) picture() (all []string) {
	w.c.t.Helper()
	for _, q := range []struct {
		key, version int16
		body         string
	}{
		{2, 6, `{"ReplicaID":-1,"Topics":[{"Topic":"t","Partitions":[{"CurrentLeaderEpoch":-1,"Timestamp":-1},{"Partition":1,"CurrentLeaderEpoch":-1,"Timestamp":-1},{"CurrentLeaderEpoch":-1,"Timestamp":-2,"Partition":1}]}]}`},
		{3, 13, `{}`},
		{9, 9, offsetFetch},
		{15, 5, `{"Groups":["g"]}`},
		{16, 5, `{}`},
		{18, 4, `{"ClientSoftwareName":"a","ClientSoftwareVersion":"b"}`},
		{32, 4, `{"Resources":[{"ResourceType":"TOPIC","ResourceName":"t"},{"ResourceType":"GROUP_CONFIG","ResourceName":"g"},{"ResourceType":"BROKER","ResourceName":"1"}]}`},
		{61, 0, `{"Topics":[{"Topic":"t","Partitions":[0,1]}]}`},
		{65, 0, `{"TransactionalIDs":["pay"]}`},
		{66, 2, `{"DurationFilterMillis":-1}`},
		{69, 1, `{"Groups":["members","g2"]}`},
		{74, 1, `{}`},
	} {
		resp := w.request(q.key, q.version, q.body)
		if r, ok := resp.(*kmsg.DescribeTransactionsResponse); ok {
			r.TransactionStates[0].StartTimestamp = 0 // wall time, reckoned back: it may be off by a millisecond
		}
		all = append(all, kmsg.NameForKey(q.key)+" "+text(resp))
	}
	return all
}
