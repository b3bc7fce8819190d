package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/strandline-io/strandline/stream/blob"
	"github.com/strandline-io/strandline/stream/kafka"
	"github.com/strandline-io/strandline/stream/task"
	"golang.org/x/term"
)

// screen shows live progress if it is a terminal.
type screen struct {
	out   io.Writer
	live  bool
	shown bool
	last  task.Progress
}

func newScreen(out io.Writer) *screen {
	f, ok := out.(*os.File)
	return &screen{out: out, live: ok && term.IsTerminal(int(f.Fd()))}
}

// progress is called from one goroutine at a time.
func (s *screen) progress(p task.Progress) {
	s.last = p
	if !s.live {
		return
	}
	watermark := "—"
	if ms := p.Stage("read").WatermarkMs; ms != task.NoWatermark {
		watermark = time.UnixMilli(ms).UTC().Format("2006-01-02 15:04")
	} else if st := p.Stage("read"); st.Ended == st.Tasks && st.Tasks > 0 {
		watermark = "the end"
	}
	fmt.Fprintf(s.out, "\r\033[K%6d lines read · %6d rows · watermark %s · %5d windows closed · %d commits",
		p.Stage("load").Counters.Emitted, p.Stage("by-origin").Counters.Records, watermark, p.Stage("by-origin").SinkRows, p.Commits)
	s.shown = true
}

func (s *screen) end() {
	if s.shown {
		fmt.Fprintln(s.out)
	}
}

const worst = 10

// report ends with the worst origin-days and where to look next.
func report(ctx context.Context, o options, p task.Progress, cfg kafka.Config, store blob.Store, out io.Writer) error {
	rows, err := readRows(ctx, cfg)
	if err != nil {
		return err
	}
	slices.SortFunc(rows, func(a, b dailyDelay) int {
		return cmp.Or(cmp.Compare(b.TotalDelayMin, a.TotalDelayMin), cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Day, b.Day))
	})
	names, err := sameInBlobs(ctx, store, len(rows))
	if err != nil {
		return err
	}
	load, read, byOrigin := p.Stage("load").Counters, p.Stage("read").Counters, p.Stage("by-origin").Counters
	fmt.Fprintf(out, "%d flights → %d origin-days, each once, in topic %s and in %s\n", load.Emitted, len(rows), resultTopic, store)
	for what, n := range map[string]int64{
		"skipped":                      load.Skipped + read.Skipped + byOrigin.Skipped,
		"sent to topic " + deadLetters: load.DeadLettered + read.DeadLettered + byOrigin.DeadLettered,
	} {
		if n > 0 {
			fmt.Fprintf(out, "%d lines that are no flights were %s\n", n, what)
		}
	}
	if byOrigin.Late > 0 {
		fmt.Fprintf(out, "%d flights came more than %v out of order, after their day had closed, and are not counted\n", byOrigin.Late, day)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\norigin\tday\tflights\tdelayed\ttotal min\tmax min\t")
	for _, r := range rows[:min(worst, len(rows))] {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t\n", r.Origin, r.Day, r.Flights, r.Delayed, r.TotalDelayMin, r.MaxDelayMin)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	hints(o, names, out)
	return nil
}

// readRows reads the result as any consumer would see it.
func readRows(ctx context.Context, cfg kafka.Config) ([]dailyDelay, error) {
	c, err := kafka.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var rows []dailyDelay
	for n := range int32(partitions) {
		_, err := c.ReadAll(ctx, kafka.TopicPartition{Topic: resultTopic, Partition: n}, kafka.Committed, func(r kafka.Record) error {
			var row dailyDelay
			rows = append(rows, row)
			return json.Unmarshal(r.Value, &rows[len(rows)-1])
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// sameInBlobs lists the blobs of the result and refuses to call them complete if they do not hold as many rows as the topic.
func sameInBlobs(ctx context.Context, store blob.Store, rows int) (names []string, err error) {
	err = store.List(ctx, resultTopic+"/", func(e blob.Entry) error {
		if path.Ext(e.Name) == ".avro" {
			names = append(names, e.Name)
		}
		return nil
	})
	found := 0
	for _, name := range names {
		if err == nil {
			err = blob.ReadRows(ctx, store, name, func(dailyDelay) error { found++; return nil })
		}
	}
	if err == nil && found != rows {
		err = fmt.Errorf("topic %s holds %d origin-days, the %d blobs in %s hold %d: something was moved or deleted there since the "+
			"job wrote it; put it back, or begin anew over fresh data", resultTopic, rows, len(names), store, found)
	}
	return names, err
}

// show prints a blob, one row a line.
func show(ctx context.Context, o options, out io.Writer) error {
	store, err := o.openStore()
	if err != nil {
		return err
	}
	lines := json.NewEncoder(out)
	return blob.ReadRows(ctx, store, o.show, func(d dailyDelay) error { return lines.Encode(d) })
}

func hints(o options, names []string, out io.Writer) {
	brokers := o.brokers
	fmt.Fprintln(out, "\nlook at it:")
	if brokers == "" {
		brokers = "127.0.0.1:9092"
		fmt.Fprintf(out, "  go run ./cmd/strandline serve --data-dir %s\n", filepath.Join(o.data, "broker"))
	}
	fmt.Fprintf(out, "  kcat -b %s -C -t %s -e -X isolation.level=read_committed\n", brokers, resultTopic)
	if len(names) == 0 {
		return
	}
	where := "-data " + o.data
	if o.store != "" {
		where = "-store " + o.store
	}
	more := ""
	if len(names) > 1 {
		more = fmt.Sprintf("   (and %d more blobs: in the store below %s/)", len(names)-1, resultTopic)
	}
	fmt.Fprintf(out, "  go run ./examples/01-flights %s -show %s%s\n", where, names[0], more)
}
