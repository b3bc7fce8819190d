package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster starts a broker inside the test. version 1 turns implicit partition adding off.
func cluster(t *testing.T, transactionVersion int16) (*kfake.Cluster, *Client) {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	if transactionVersion < 2 {
		lowerTransactionVersion(fake)
	}
	c, err := Open(t.Context(), Config{Brokers: fake.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if c.TransactionVersion() < 2 != (transactionVersion < 2) {
		t.Fatalf("transaction version %d", c.TransactionVersion())
	}
	return fake, c
}

// lowerTransactionVersion makes the broker look like one before KIP-890's second part, which sends no feature list.
func lowerTransactionVersion(fake *kfake.Cluster) {
	fake.ControlKey(18, func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if kreq.GetVersion() > 3 {
			resp := kreq.ResponseKind().(*kmsg.ApiVersionsResponse)
			resp.Version, resp.ErrorCode = 0, 35
			return resp, nil, true
		}
		resp := kreq.ResponseKind().(*kmsg.ApiVersionsResponse)
		for key, v := range map[int16][2]int16{
			0: {3, 11}, 1: {4, 16}, 2: {1, 8}, 3: {0, 12}, 8: {0, 9}, 9: {0, 9}, 10: {0, 4}, 11: {0, 9}, 12: {0, 4}, 13: {0, 5},
			14: {0, 5}, 18: {0, 3}, 19: {0, 7}, 22: {0, 4}, 24: {0, 3}, 25: {0, 3}, 26: {0, 4}, 28: {0, 4}, 32: {0, 4},
		} {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = key, v[0], v[1]
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
		return resp, nil, true
	})
}

func create(t *testing.T, c *Client, specs ...TopicSpec) map[string]Topic {
	t.Helper()
	topics, err := c.CreateTopics(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	return topics
}

func open(t *testing.T, c *Client, id string) *Producer {
	t.Helper()
	p, err := c.OpenProducer(t.Context(), ProducerConfig{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// produce sends one record per value to partition 0 and waits for the acknowledgements.
func produce(t *testing.T, p *Producer, topic string, values ...string) {
	t.Helper()
	for _, v := range values {
		p.Produce(t.Context(), Record{TopicPartition: TopicPartition{topic, 0}, Value: []byte(v)}, nil)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, p *Producer) {
	t.Helper()
	if err := p.Begin(); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, p *Producer) {
	t.Helper()
	if o, err := p.Commit(t.Context()); o != CommittedOutcome || err != nil {
		t.Fatalf("commit: %v %v", o, err)
	}
}

func readAll(t *testing.T, c *Client, topic string) (values string, next int64) {
	t.Helper()
	var got []string
	next, err := c.ReadAll(t.Context(), TopicPartition{topic, 0}, Uncommitted, func(r Record) error {
		got = append(got, string(r.Value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(got, " "), next
}

func bothVersions(t *testing.T, f func(t *testing.T, c *Client)) {
	for _, v := range []int16{1, 2} {
		t.Run(fmt.Sprintf("transaction.version=%d", v), func(t *testing.T) {
			_, c := cluster(t, v)
			f(t, c)
		})
	}
}

func TestTransactions(t *testing.T) {
	bothVersions(t, func(t *testing.T, c *Client) {
		create(t, c, TopicSpec{Name: "t", Partitions: 2, KeepForever: true})
		p := open(t, c, "id")
		begin(t, p)
		produce(t, p, "t", "a", "b")
		commit(t, p)
		begin(t, p)
		produce(t, p, "t", "never")
		if o, err := p.Abort(t.Context()); o != AbortedOutcome || err != nil {
			t.Fatalf("abort: %v %v", o, err)
		}
		begin(t, p)
		produce(t, p, "t", "c")
		commit(t, p)
		values, next := readAll(t, c, "t")
		// a b commit never abort c commit: control and aborted offsets count in the position.
		if values != "a b c" || next != 7 {
			t.Errorf("read %q up to %d", values, next)
		}
	})
}

func TestTakeoverAbortsAndFences(t *testing.T) {
	bothVersions(t, func(t *testing.T, c *Client) {
		create(t, c, TopicSpec{Name: "t", Partitions: 1})
		zombie := open(t, c, "id")
		begin(t, zombie)
		produce(t, zombie, "t", "zombie")
		heir := open(t, c, "id")
		o, err := zombie.Commit(t.Context())
		if o == CommittedOutcome || err == nil {
			t.Errorf("the zombie's commit: %v %v", o, err)
		}
		begin(t, heir)
		produce(t, heir, "t", "heir")
		commit(t, heir)
		if values, _ := readAll(t, c, "t"); values != "heir" {
			t.Errorf("read %q", values)
		}
	})
}

func TestOffsetsCommitWithTheTransaction(t *testing.T) {
	bothVersions(t, func(t *testing.T, c *Client) {
		create(t, c, TopicSpec{Name: "t", Partitions: 2})
		p := open(t, c, "id")
		tp := TopicPartition{"t", 1}
		committed := func(want int64) {
			t.Helper()
			got, err := c.CommittedOffsets(t.Context(), "g", []TopicPartition{tp, {"t", 0}})
			if err != nil {
				t.Fatal(err)
			}
			if offset, ok := got[tp]; ok != (want >= 0) || ok && offset != want || len(got) > 1 {
				t.Errorf("committed %v, want %d", got, want)
			}
		}
		end := func(offset int64, commitIt bool) {
			t.Helper()
			begin(t, p)
			produce(t, p, "t", "x")
			// Without a member the broker does not check it, as before KIP-447.
			err := p.CommitOffsets(t.Context(), Membership{Group: "g", Generation: -1}, map[TopicPartition]int64{tp: offset})
			if err != nil {
				t.Fatal(err)
			}
			if commitIt {
				commit(t, p)
			} else if _, err := p.Abort(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		committed(-1)
		end(5, true)
		committed(5)
		end(9, false)
		committed(5)
		end(7, true)
		committed(7)
	})
}

func TestStaleMemberCannotCommitOffsets(t *testing.T) {
	_, c := cluster(t, 2)
	create(t, c, TopicSpec{Name: "t", Partitions: 1})
	assigned := make(chan Membership, 1)
	m := join(t, c, "g", "slot", assigned)
	now := <-assigned
	p := open(t, c, "id")
	try := func(m Membership) error {
		begin(t, p)
		produce(t, p, "t", "x")
		err := p.CommitOffsets(t.Context(), m, map[TopicPartition]int64{{"t", 0}: 1})
		if err == nil {
			commit(t, p)
		} else if _, err := p.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
		return err
	}
	if err := try(now); err != nil {
		t.Errorf("the member itself: %v", err)
	}
	stale := now
	stale.Generation--
	if err := try(stale); err == nil {
		t.Error("an old generation was accepted")
	}
	other := now
	other.MemberID = "somebody"
	if err := try(other); err == nil {
		t.Error("an unknown member was accepted")
	}
	if err := m.Leave(t.Context()); err != nil {
		t.Error(err)
	}
}

func join(t *testing.T, c *Client, group, instance string, assigned chan<- Membership) *Member {
	t.Helper()
	m, err := c.Join(MemberConfig{
		Group: group, InstanceID: instance, Stages: []StageInputs{{"s", 1, []string{"t"}}}, HeartbeatInterval: 20 * time.Millisecond,
		OnAssigned: func(m Membership, _ []TopicPartition) { assigned <- m },
		OnRevoked:  func([]TopicPartition) {},
		OnLost:     func([]TopicPartition) {},
		OnError:    func(error, bool) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSlotHasOneOwner(t *testing.T) {
	_, c := cluster(t, 2)
	create(t, c, TopicSpec{Name: "t", Partitions: 1})
	assigned := make(chan Membership, 2)
	zombie := join(t, c, "g", "slot", assigned)
	defer zombie.Close()
	<-assigned
	if err := zombie.Check(t.Context()); err != nil {
		t.Errorf("the only owner: %v", err)
	}
	heir := join(t, c, "g", "slot", assigned)
	defer heir.Close()
	<-assigned
	if err := heir.Check(t.Context()); err != nil {
		t.Errorf("the heir: %v", err)
	}
	if err := zombie.Check(t.Context()); !errors.Is(err, ErrFenced) {
		t.Errorf("the zombie: %v", err)
	}
}

func TestCreateTopicsComparesWhatExists(t *testing.T) {
	_, c := cluster(t, 2)
	first := create(t, c, TopicSpec{Name: "a", Partitions: 3, Compacted: true}, TopicSpec{Name: "b", Partitions: 1})
	again := create(t, c, TopicSpec{Name: "a", Partitions: 3, Compacted: true}, TopicSpec{Name: "b", Partitions: 1})
	if first["a"] != again["a"] || first["a"].Partitions != 3 || first["a"].ID == strings.Repeat("0", 32) {
		t.Errorf("%+v then %+v", first, again)
	}
	f := func(s TopicSpec, what string) {
		t.Helper()
		_, err := c.CreateTopics(t.Context(), []TopicSpec{s})
		var d *DifferentTopicError
		if !errors.As(err, &d) || d.What != what {
			t.Errorf("got %v", err)
		}
	}
	f(TopicSpec{Name: "a", Partitions: 2, Compacted: true}, "partition count")
	f(TopicSpec{Name: "b", Partitions: 1, Compacted: true}, "cleanup.policy")
	got, err := c.Topics(t.Context(), "a", "nowhere")
	if err != nil || len(got) != 1 {
		t.Errorf("%v %v", got, err)
	}
}

// Topics are asked to take any event time; a broker that does not know the setting gets the topic without.
func TestCreateTopicsForAnyTime(t *testing.T) {
	fake, c := cluster(t, 2)
	var asked []string
	fake.ControlKey(19, func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, rt := range kreq.(*kmsg.CreateTopicsRequest).Topics {
			for _, set := range rt.Configs {
				asked = append(asked, rt.Topic+" "+set.Name+"="+*set.Value)
				if set.Name == timestampAfterMax {
					st := kmsg.NewCreateTopicsResponseTopic()
					st.Topic, st.ErrorCode = rt.Topic, kerr.InvalidConfig.Code
					resp.Topics = append(resp.Topics, st)
				}
			}
		}
		return resp, nil, len(resp.Topics) > 0
	})
	create(t, c, TopicSpec{Name: "a", Partitions: 1, KeepForever: true})
	want := "a retention.ms=-1, a message.timestamp.after.max.ms=9223372036854775807, a retention.ms=-1"
	if got := strings.Join(asked, ", "); got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
}

func TestTransactionTimeoutIsChecked(t *testing.T) {
	_, c := cluster(t, 2)
	if err := c.CheckTransactionTimeout(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
	_, err := c.OpenProducer(t.Context(), ProducerConfig{ID: "id", TransactionTimeout: 24 * time.Hour})
	var tooLong *TransactionTimeoutError
	if !errors.As(err, &tooLong) && !errors.As(c.CheckTransactionTimeout(t.Context(), 24*time.Hour), &tooLong) {
		t.Errorf("got %v", err)
	}
}

func TestOpenSaysWhereNobodyAnswers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, Config{Brokers: []string{"127.0.0.1:1"}})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
	if _, err := Open(ctx, Config{}); err == nil || !strings.Contains(err.Error(), "host:port") {
		t.Errorf("got %v", err)
	}
}

func TestReadToEndSeesTheOpenTransactionsEnd(t *testing.T) {
	_, c := cluster(t, 2)
	create(t, c, TopicSpec{Name: "t", Partitions: 1})
	p := open(t, c, "id")
	begin(t, p)
	produce(t, p, "t", "a")
	done := make(chan string, 1)
	go func() {
		values, next := readAll(t, c, "t") // its end lies beyond the open transaction
		done <- fmt.Sprint(values, next)
	}()
	select {
	case got := <-done:
		t.Errorf("read %q past an open transaction", got)
	case <-time.After(150 * time.Millisecond):
	}
	commit(t, p)
	if got := <-done; got != "a2" && got != "a1" {
		t.Errorf("read %q", got)
	}
}

func TestAssign(t *testing.T) {
	stages := []StageInputs{{"a", 4, []string{"x", "y"}}, {"b", 1, []string{"z"}}, {"c", 3, []string{"w"}}}
	f := func(owned [][]Task, want string) {
		t.Helper()
		var b strings.Builder
		for _, tasks := range assign(stages, owned) {
			slices.SortFunc(tasks, func(a, b Task) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			for _, task := range tasks {
				fmt.Fprintf(&b, "%s%d", task.Stage, task.Number)
			}
			b.WriteByte(' ')
		}
		if got := strings.TrimSpace(b.String()); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f([][]Task{nil}, "a0a1a2a3b0c0c1c2")
	f([][]Task{nil, nil}, "a0a2b0c1 a1a3c0c2")
	// Sticky as long as fair; what nobody had goes to whoever has least.
	f([][]Task{{{"a", 3}, {"a", 1}, {"b", 0}}, nil}, "a1a3b0c1 a0a2c0c2")
	// A newcomer gets its share although all was owned.
	f([][]Task{{{"a", 0}, {"a", 1}}, {{"a", 2}, {"a", 3}}, nil}, "a0a1c1 a2b0c2 a3c0")
	// Claims of two members, or of tasks that do not exist, are settled.
	f([][]Task{{{"a", 0}, {"a", 9}}, {{"a", 0}, {"q", 1}}}, "a0a2b0c1 a1a3c0c2")
}
