//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
)

// flight is a line of the input, as in examples/01-flights, so that its job can be drilled with the same files.
type flight struct {
	Date        string `json:"date"`
	Delay       *int64 `json:"delay"`
	Distance    int64  `json:"distance"`
	Origin      string `json:"origin"`
	Destination string `json:"destination"`
}

// row is a line of the result: one origin's day.
type row struct {
	Origin        string `json:"origin" avro:"origin"`
	Day           string `json:"day" avro:"day"`
	Flights       int64  `json:"flights" avro:"flights"`
	Delayed       int64  `json:"delayed" avro:"delayed"`
	TotalDelayMin int64  `json:"total_delay_min" avro:"total_delay_min"`
	MaxDelayMin   int64  `json:"max_delay_min" avro:"max_delay_min"`
}

const (
	partitions     = 4
	day            = 24 * time.Hour
	delayedMinutes = 15
	dateForm       = "2006/01/02 15:04"
)

// writeInput makes files of flights and returns what the job must make of them. Event times are up to half a day out of
// order, half of what the job allows, so that no flight is late if watermarks are right.
func writeInput(rng *rand.Rand, dir string, files, lines int) (names []string, want map[row]bool, err error) {
	type key struct{ origin, day string }
	sums := make(map[key]row)
	for n := range files {
		name := fmt.Sprintf("flights-%d.ndjson", n)
		names = append(names, name)
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return nil, nil, err
		}
		w := bufio.NewWriter(f)
		at := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
		for range lines / files {
			at = at.Add(time.Duration(rng.Int64N(int64(30 * time.Minute))))
			when, delay := at.Add(-time.Duration(rng.Int64N(int64(day/2)))), rng.Int64N(90)-20
			if when.Year() < 2001 {
				when = at
			}
			line := flight{
				Date: when.Format(dateForm), Delay: &delay, Distance: rng.Int64N(3000),
				Origin: fmt.Sprintf("O%02d", rng.IntN(17)), Destination: fmt.Sprintf("D%02d", rng.IntN(17)),
			}
			k := key{line.Origin, when.Format(time.DateOnly)}
			sums[k] = add(sums[k], delay)
			b, err := json.Marshal(line)
			if err != nil {
				return nil, nil, err
			}
			_, _ = w.Write(append(b, '\n')) // Flush tells
		}
		if err := errors.Join(w.Flush(), f.Close()); err != nil {
			return nil, nil, err
		}
	}
	want = make(map[row]bool, len(sums))
	for k, r := range sums {
		r.Origin, r.Day = k.origin, k.day
		want[r] = true
	}
	return names, want, nil
}

// add counts one flight.
func add(r row, delay int64) row {
	if r.Flights == 0 || delay > r.MaxDelayMin {
		r.MaxDelayMin = delay
	}
	r.Flights++
	r.TotalDelayMin += delay
	if delay > delayedMinutes {
		r.Delayed++
	}
	return r
}

// jobOptions describe the drill's own job.
type jobOptions struct {
	name  string
	dir   string   // of the input files
	files []string // with more than one, a loader may be ahead of another: then it is re-keyed from the files directly
	store blob.Store
	pace  time.Duration // a loader rests so long every paceLines lines
}

const paceLines = 16

// madeRows is what a worker prints every rowsALine rows, so that the drill knows how far the work is.
const (
	rowsALine = 8
	madeRows  = "made some rows"
)

func (o jobOptions) resultTopic() string { return o.name + "-days" }

// topology is that of examples/01-flights, with small blobs so that some are done in the midst of the work, and with a
// variant that merges the watermarks of several loaders over two intermediate streams.
func (o jobOptions) topology() (*stream.Plan, error) {
	j := stream.NewJob(o.name)
	read, made := 0, 0
	lines := stream.FromFile(j, "load", stream.FileSource{
		FS: os.DirFS(o.dir), Names: o.files, MaxDisorder: day,
		EventTime: func(line []byte) (int64, error) {
			if read++; o.pace > 0 && read%paceLines == 0 {
				<-time.After(o.pace)
			}
			_, ms, err := parse(line)
			return ms, err
		},
	})
	codecs := stream.Codecs[string, flight]{Key: stream.String, Value: stream.JSON[flight]()}
	loaded := stream.Map(lines, func(r stream.Record[stream.None, []byte]) (stream.Record[string, flight], error) {
		f, _, err := parse(r.Value)
		return stream.With(r, f.Destination, f), err
	})
	var flights stream.Stream[string, flight]
	if len(o.files) == 1 {
		topic := o.name + "-flights"
		stream.ToTopic(loaded, "flights", stream.TopicSink[string, flight]{Topic: topic, Partitions: partitions, Codecs: codecs})
		flights = stream.FromTopic(j, "read", stream.TopicSource[string, flight]{
			Topic: topic, Bounded: true, MaxDisorder: day, Codecs: codecs,
			EventTime: func(r stream.Record[string, flight]) (int64, error) { return departure(r.Value) },
		})
	} else {
		flights = stream.KeyBy(loaded, "by-destination", partitions,
			func(r stream.Record[string, flight]) (string, error) { return r.Key, nil }, codecs)
	}
	byOrigin := stream.KeyBy(flights, "by-origin", partitions,
		func(r stream.Record[string, flight]) (string, error) { return r.Value.Origin, nil }, codecs)
	rowCodecs := stream.Codecs[string, row]{Key: stream.String, Value: stream.JSON[row]()}
	perDay := stream.Aggregate(stream.Window(byOrigin, "days", stream.Tumbling(day)), func() row { return row{} },
		func(sum row, r stream.Record[string, flight]) (row, error) { return add(sum, *r.Value.Delay), nil }, rowCodecs)
	rows := stream.Map(perDay, func(r stream.Record[string, stream.Pane[row]]) (stream.Record[string, row], error) {
		if made++; made%rowsALine == 0 {
			fmt.Fprintln(os.Stderr, madeRows)
		}
		out := r.Value.Value
		out.Origin, out.Day = r.Key, time.UnixMilli(r.Value.StartMs).UTC().Format(time.DateOnly)
		return stream.With(r, r.Key, out), nil
	})
	stream.ToTopic(rows, "days", stream.TopicSink[string, row]{Topic: o.resultTopic(), Partitions: partitions, Codecs: rowCodecs})
	stream.ToSink(rows, stream.String, blob.New(o.resultTopic(), o.store, blob.WithType[row](), func(c *blob.Config) {
		c.MaxRows, c.BlockBytes, c.AvroBlockBytes, c.CallTimeout = 60, 1<<10, 512, 2*time.Second
	}))
	return j.Build()
}

func parse(line []byte) (f flight, timeMs int64, err error) {
	if err := json.Unmarshal(line, &f); err != nil {
		return f, 0, err
	}
	if f.Delay == nil {
		return f, 0, errors.New("a flight without delay")
	}
	timeMs, err = departure(f)
	return f, timeMs, err
}

func departure(f flight) (int64, error) {
	t, err := time.Parse(dateForm, f.Date)
	return t.UnixMilli(), err
}
