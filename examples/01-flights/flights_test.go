package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/strandline-io/strandline/broker"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task"
	"github.com/twmb/avro/ocf"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestMain lets the test binary be a worker process of its own tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-replica" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// flights runs the job and returns its exit code and what it printed.
func flights(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code = run(ctx, args, strings.NewReader(""), &stdout, &stderr)
	if ctx.Err() != nil {
		t.Fatalf("the job hangs:\n%s%s", &stdout, &stderr)
	}
	return code, stdout.String() + stderr.String()
}

func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	code, out := flights(t, args...)
	if code != exitOK {
		t.Fatalf("exit %d:\n%s", code, out)
	}
	return out
}

// wanted are the rows of daily-delays.csv, each as the JSON that the topic must hold.
func wanted(t *testing.T) map[string]bool {
	t.Helper()
	f, err := os.Open("testdata/daily-delays.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]bool)
	for _, l := range lines[1:] {
		rows[fmt.Sprintf(`{"origin":%q,"day":%q,"flights":%s,"delayed":%s,"total_delay_min":%s,"max_delay_min":%s}`,
			l[0], l[1], l[2], l[3], l[4], l[5])] = true
	}
	return rows
}

// same checks that got holds every wanted row once and nothing else.
func same(t *testing.T, what string, got []string, want map[string]bool) {
	t.Helper()
	seen := make(map[string]bool)
	for _, row := range got {
		if seen[row] {
			t.Errorf("%s holds a row twice: %s", what, row)
			return
		}
		seen[row] = true
		if !want[row] {
			t.Errorf("%s holds a row that is not wanted: %s", what, row)
			return
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s holds %d rows, want %d", what, len(got), len(want))
	}
}

// serve runs a broker over the broker folder of a job.
func serve(t *testing.T, data string) (ctx context.Context, address string, stop func()) {
	t.Helper()
	b, err := broker.New(broker.Config{
		Listen: "127.0.0.1:0", DataDir: filepath.Join(data, "broker"), GroupInitialRebalanceDelayMs: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx) }()
	return ctx, b.Addr().String(), func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// topic reads a topic of the broker folder that a job left, committed records only.
func topic(t *testing.T, data, name string) []string {
	t.Helper()
	ctx, address, stop := serve(t, data)
	defer stop()
	cl, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics(name), kgo.KeepControlRecords(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	left := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	var rows []string
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := errors.Join(fetches.Err0(), ctx.Err()); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] { // a marker is the last thing in every partition
				delete(left, r.Partition)
			}
			if !r.Attrs.IsControl() {
				rows = append(rows, string(r.Value))
			}
		})
	}
	return rows
}

// blobs reads all Avro files below a folder.
func blobs(t *testing.T, folder string) (rows []string, files int) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".avro" {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		r, err := ocf.NewReader(bytes.NewReader(data))
		if err != nil {
			return err
		}
		defer r.Close()
		for {
			var row dailyDelay
			if err := r.Decode(&row); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			text, err := json.Marshal(row)
			if err != nil {
				return err
			}
			rows = append(rows, string(text))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows, files
}

func TestAFolderInUseIsNamedWithWhatToDo(t *testing.T) {
	data := t.TempDir()
	_, _, stop := serve(t, data)
	defer stop()
	code, out := flights(t, "-data", data)
	if code != exitRefused || !strings.Contains(out, filepath.Join(data, "broker")+" is in use by another broker") || !strings.Contains(out, "-brokers 127.0.0.1:9092") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

// check compares both outputs with the table.
func check(t *testing.T, data string) {
	t.Helper()
	want := wanted(t)
	same(t, "the topic", topic(t, data, resultTopic), want)
	rows, files := blobs(t, filepath.Join(data, "blobs", resultTopic))
	same(t, "the blobs", rows, want)
	if files != partitions {
		t.Errorf("%d blobs, want one per output task", files)
	}
}

func TestResultEqualsTheTable(t *testing.T) {
	for i := range 4 {
		workers, durability := 1+2*(i%2), []string{"fsync", "write"}[i/2]
		t.Run(fmt.Sprintf("%d workers, %s", workers, durability), func(t *testing.T) {
			data := t.TempDir()
			out := mustRun(t, "-data", data, "-workers", strconv.Itoa(workers), "-durability", durability)
			for _, text := range []string{"20000 flights", "6901 origin-days", "DFW  2001-02-27", "kcat", "serve --data-dir", ".avro"} {
				if !strings.Contains(out, text) {
					t.Errorf("nothing of %q in:\n%s", text, out)
				}
			}
			check(t, data)
			again := mustRun(t, "-data", data, "-workers", strconv.Itoa(4-workers))
			if cut(again) != cut(out) {
				t.Errorf("the second run said something else:\n%s\n%s", out, again)
			}
			check(t, data)
		})
	}
}

// A job that has ended says that a row is in its blobs only if it is.
func TestBlobsThatAreGone(t *testing.T) {
	data := t.TempDir()
	file := filepath.Join(data, "some.ndjson")
	if err := os.WriteFile(file, bytes.Join(head(t, 300), nil), 0o644); err != nil {
		t.Fatal(err)
	}
	out := mustRun(t, "-data", data, "-input", file)
	_, shown, _ := strings.Cut(out, "-show ")
	name := strings.Fields(shown)[0]
	if rows := mustRun(t, "-data", data, "-show", name); !strings.Contains(rows, `{"origin":"`) {
		t.Errorf("-show %s: %s", name, rows)
	}
	f := func(want string, args ...string) {
		t.Helper()
		code, out := flights(t, append(args, "-data", data, "-input", file)...)
		if code != exitRefused || !strings.Contains(out, want) || strings.Contains(out, "each once") {
			t.Errorf("exit %d:\n%s", code, out)
		}
	}
	f("not the store that the run began with", "-store", "file:"+t.TempDir())
	if err := os.Remove(filepath.Join(data, "blobs", name)); err != nil {
		t.Fatal(err)
	}
	f("moved or deleted")
	if err := os.RemoveAll(filepath.Join(data, "blobs")); err != nil {
		t.Fatal(err)
	}
	f("not the store that the run began with")
}

// cut takes the first line off, which names the port.
func cut(out string) string {
	_, rest, _ := strings.Cut(out, "\n")
	return rest
}

func TestAnotherInputIsRefused(t *testing.T) {
	data := t.TempDir()
	file := filepath.Join(data, "some.ndjson")
	write := func(lines int) {
		t.Helper()
		if err := os.WriteFile(file, bytes.Join(head(t, lines), nil), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(20)
	mustRun(t, "-data", data, "-input", file)
	write(21)
	code, out := flights(t, "-data", data, "-input", file)
	if code != exitRefused || !strings.Contains(out, "another input") || !strings.Contains(out, "-data") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

// head returns the first lines of the bundled input.
func head(t *testing.T, lines int) [][]byte {
	t.Helper()
	all, err := bundled.ReadFile("flights.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.SplitAfterN(all, []byte("\n"), lines+1)[:lines]
}

func TestBadInput(t *testing.T) {
	good := head(t, 30)
	lines := bytes.Join([][]byte{
		bytes.Join(good[:10], nil),
		[]byte("this is no JSON\n"),
		bytes.Join(good[10:20], nil),
		[]byte(`{"date":"2001/13/01 00:47","delay":66,"distance":1750,"origin":"DTW","destination":"LAS"}` + "\n"),
		[]byte(`{"date":"2001/01/01 00:47","delay":"late","distance":1750,"origin":"DTW","destination":"LAS"}` + "\n"),
		bytes.Join(good[20:], nil),
	}, nil)
	f := func(policy string, wantCode int, wants ...string) string {
		t.Helper()
		data := t.TempDir()
		file := filepath.Join(data, "bad.ndjson")
		if err := os.WriteFile(file, lines, 0o644); err != nil {
			t.Fatal(err)
		}
		code, out := flights(t, "-data", data, "-input", file, "-bad-input", policy)
		if code != wantCode {
			t.Errorf("%s: exit %d:\n%s", policy, code, out)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: nothing of %q in:\n%s", policy, want, out)
			}
		}
		return data
	}
	data := f("stop", exitRefused, "bad.ndjson:11:", "not a flight", "fresh data: another -data", "-bad-input skip; dead-letter must be chosen from the start")
	out := mustRun(t, "-data", data, "-input", filepath.Join(data, "bad.ndjson"), "-bad-input", "skip")
	if !strings.Contains(out, "30 flights") {
		t.Errorf("the same data does not go on:\n%s", out)
	}
	f("skip", exitOK, "30 flights", "3 lines", "skipped")
	data = f("dead-letter", exitOK, "30 flights", "3 lines", deadLetters)
	letters := topic(t, data, deadLetters)
	if len(letters) != 3 || letters[0] != "this is no JSON" || !strings.Contains(letters[2], `"late"`) {
		t.Errorf("dead letters: %q", letters)
	}
}

// What others wrote into the topic between the stages is under the policy too, and goes where bad lines go.
func TestBadInputInTheTopic(t *testing.T) {
	foreign := []string{
		"this is no JSON",
		`{"date":"2001/01/01 00:47","distance":1750,"origin":"DTW","destination":"LAS"}`, // no delay
		`{"date":"yesterday","delay":66,"distance":1750,"origin":"DTW","destination":"LAS"}`,
	}
	f := func(policy string, wantCode int, wants ...string) string {
		t.Helper()
		data := t.TempDir()
		file := filepath.Join(data, "good.ndjson")
		if err := os.WriteFile(file, bytes.Join(head(t, 30), nil), 0o644); err != nil {
			t.Fatal(err)
		}
		produce(t, data, foreign...)
		code, out := flights(t, "-data", data, "-input", file, "-bad-input", policy)
		if code != wantCode {
			t.Errorf("%s: exit %d:\n%s", policy, code, out)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: nothing of %q in:\n%s", policy, want, out)
			}
		}
		return data
	}
	f("stop", exitRefused, "stream read partition", "no JSON of main.flight")
	f("skip", exitOK, "30 flights", "3 lines", "skipped")
	data := f("dead-letter", exitOK, "30 flights", "3 lines", deadLetters)
	letters := topic(t, data, deadLetters)
	slices.Sort(letters)
	slices.Sort(foreign)
	if !slices.Equal(letters, foreign) {
		t.Errorf("dead letters: %q", letters)
	}
}

// produce writes values into the topic that the job loads, before the job does.
func produce(t *testing.T, data string, values ...string) {
	t.Helper()
	ctx, address, stop := serve(t, data)
	defer stop()
	cl, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, 1, nil, inputTopic); err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: inputTopic, Key: []byte("LAS"), Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// Lines that no topic takes are bad input like others: longer than a record, or later than a Kafka client can say. A day
// ahead of the clock is none of that, although brokers refuse it by default.
func TestLinesThatDoNotFit(t *testing.T) {
	line := func(date string) string {
		return `{"date":"` + date + `","delay":66,"distance":1750,"origin":"DTW","destination":"LAS"}` + "\n"
	}
	data := t.TempDir()
	file := filepath.Join(data, "bad.ndjson")
	text := line("2001/01/01 00:47") + strings.Repeat("long", 1<<20) + "\n" + line("2600/01/01 00:47") + line("2199/12/31 00:47") +
		strings.Repeat("l", 1<<20) + "\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out := mustRun(t, "-data", data, "-input", file, "-bad-input", "dead-letter")
	if !strings.Contains(out, "2 flights → 2 origin-days") || !strings.Contains(out, "3 lines") {
		t.Errorf("got %s", out)
	}
	letters := topic(t, data, deadLetters)
	if len(letters) != 3 || len(letters[0]) < 1<<19 || !strings.Contains(letters[1], "2600") || len(letters[2]) < 1<<19 {
		t.Errorf("%d dead letters", len(letters))
	}
	rows := topic(t, data, resultTopic)
	if len(rows) != 2 || !strings.Contains(rows[0]+rows[1], "2001-01-01") || !strings.Contains(rows[0]+rows[1], "2199-12-31") {
		t.Errorf("rows %q", rows)
	}
}

// Brokers and jobs that are started together come up in any order: a port that is closed or drops connections at first is
// waited for, by parent and children, and the user sees it. Children that waited in vain are started again.
func TestBrokerThatComesLate(t *testing.T) {
	data := t.TempDir()
	file := filepath.Join(data, "some.ndjson")
	if err := os.WriteFile(file, bytes.Join(head(t, 30), nil), 0o644); err != nil {
		t.Fatal(err)
	}
	_, address, stop := serve(t, data)
	defer stop()
	for _, workers := range []string{"1", "2"} {
		late, open := door(t, address)
		const says = "no broker answers yet"
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), []string{"-data", data, "-input", file, "-brokers", late, "-workers", workers},
			strings.NewReader(""), &stdout, writer(func(text []byte) (int, error) {
				if bytes.Contains(text, []byte(says)) {
					open()
				}
				return stderr.Write(text)
			}))
		said := stderr.String()
		if code != exitOK || !strings.Contains(stdout.String(), "30 flights") || strings.Count(said, says) != 1 ||
			!strings.Contains(said, "brokers="+late) {
			t.Errorf("%s workers: exit %d\n%s%s", workers, code, &stdout, said)
		}
	}
	f := func(want int, err error) {
		t.Helper()
		if code := exit(io.Discard, fmt.Errorf("outer: %w", err)); code != want {
			t.Errorf("%v: exit %d, want %d", err, code, want)
		}
	}
	f(exitAgain, &kafka.UnreachableError{Brokers: []string{"b:1"}, Err: io.EOF})
	f(exitAgain, &task.StartDeadlineError{Err: io.EOF})
	f(exitRefused, &task.MissingTopicError{})
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// door is an address that drops connections until it is opened, and passes them on then.
func door(t *testing.T, to string) (address string, open func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var opened atomic.Bool
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			if opened.Load() {
				go pass(in, to)
			} else {
				in.Close()
			}
		}
	}()
	return l.Addr().String(), func() { opened.Store(true) }
}

func pass(in net.Conn, to string) {
	defer in.Close()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(out, in)
		out.Close()
	}()
	_, _ = io.Copy(in, out)
}

func TestFlagsAreChecked(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		if code, out := flights(t, args...); code != exitUsage || !strings.Contains(out, want) {
			t.Errorf("%v: exit %d: %s", args, code, out)
		}
	}
	f("-workers", "-workers", "0")
	f("-bad-input", "-bad-input", "ignore")
	f("-durability", "-durability", "maybe")
	f("unexpected", "extra")
}
