package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
)

const (
	jobName        = "flights"
	inputTopic     = "flights"
	resultTopic    = "daily-delays"
	deadLetters    = "flights-dead-letters"
	partitions     = 4
	delayedMinutes = 15 // a flight counts as delayed if it is later than this
	day            = 24 * time.Hour
)

// flight is one line of the input.
type flight struct {
	Date        string `json:"date"` // "2001/01/01 00:47", UTC
	Delay       *int64 `json:"delay"`
	Distance    int64  `json:"distance"`
	Origin      string `json:"origin"`
	Destination string `json:"destination"`
}

// dailyDelay is one row of the result, in the topic as JSON and in the blobs as Avro.
type dailyDelay struct {
	Origin        string `json:"origin" avro:"origin"`
	Day           string `json:"day" avro:"day"`
	Flights       int64  `json:"flights" avro:"flights"`
	Delayed       int64  `json:"delayed" avro:"delayed"`
	TotalDelayMin int64  `json:"total_delay_min" avro:"total_delay_min"`
	MaxDelayMin   int64  `json:"max_delay_min" avro:"max_delay_min"`
}

// topology loads the file into a topic, reads that to the end that the loading recorded, keys the flights by origin, and
// counts them per origin and day. badInput is for what is no flight, in the file or in the topic, which others may write.
func topology(files fs.FS, name string, badInput stream.Policy, store blob.Store) (*stream.Plan, error) {
	j := stream.NewJob(jobName)

	lines := stream.FromFile(j, "load", stream.FileSource{
		FS: files, Names: []string{name}, MaxDisorder: day, OnError: badInput,
		EventTime: func(line []byte) (int64, error) { return departure(parse(line)) },
	})
	byDestination := stream.Map(lines, func(r stream.Record[stream.None, []byte]) (stream.Record[string, []byte], error) {
		f, err := parse(r.Value)
		return stream.With(r, f.Destination, r.Value), err
	})
	stream.ToTopic(byDestination, "flights", stream.TopicSink[string, []byte]{
		Topic: inputTopic, Partitions: partitions,
		Codecs: stream.Codecs[string, []byte]{Key: stream.String, Value: stream.Bytes},
	})

	jsonCodecs := stream.Codecs[string, flight]{Key: stream.String, Value: stream.JSON[flight]()}
	flights := stream.FromTopic(j, "read", stream.TopicSource[string, flight]{
		Topic: inputTopic, Bounded: true, MaxDisorder: day, Codecs: jsonCodecs, OnError: badInput,
		EventTime: func(r stream.Record[string, flight]) (int64, error) { return departure(r.Value, r.Value.check()) },
	})
	byOrigin := stream.KeyBy(flights, "by-origin", partitions,
		func(r stream.Record[string, flight]) (string, error) { return r.Value.Origin, nil }, jsonCodecs, stream.OnError(badInput))

	perDay := stream.Aggregate(stream.Window(byOrigin, "days", stream.Tumbling(day)),
		func() dailyDelay { return dailyDelay{} }, count,
		stream.Codecs[string, dailyDelay]{Key: stream.String, Value: stream.JSON[dailyDelay]()})
	rows := stream.Map(perDay, func(r stream.Record[string, stream.Pane[dailyDelay]]) (stream.Record[string, dailyDelay], error) {
		row := r.Value.Value
		row.Origin, row.Day = r.Key, time.UnixMilli(r.Value.StartMs).UTC().Format(time.DateOnly)
		return stream.With(r, r.Key, row), nil
	})

	stream.ToTopic(rows, "daily-delays", stream.TopicSink[string, dailyDelay]{
		Topic: resultTopic, Partitions: partitions,
		Codecs: stream.Codecs[string, dailyDelay]{Key: stream.String, Value: stream.JSON[dailyDelay]()},
	})
	stream.ToSink(rows, stream.String, blob.New(resultTopic, store, blob.WithType[dailyDelay]()))
	return j.Build()
}

// count adds one flight to its origin's day.
func count(d dailyDelay, r stream.Record[string, flight]) (dailyDelay, error) {
	delay := *r.Value.Delay
	if d.Flights == 0 || delay > d.MaxDelayMin {
		d.MaxDelayMin = delay
	}
	d.Flights++
	d.TotalDelayMin += delay
	if delay > delayedMinutes {
		d.Delayed++
	}
	return d, nil
}

// parse reads a line and refuses one that lacks what the job needs.
func parse(line []byte) (flight, error) {
	var f flight
	if err := json.Unmarshal(line, &f); err != nil {
		return f, fmt.Errorf("not a flight: %w", err)
	}
	return f, f.check()
}

// check says what the job needs and f lacks.
func (f flight) check() error {
	switch {
	case f.Delay == nil:
		return errors.New("a flight without delay")
	case f.Origin == "" || f.Destination == "":
		return errors.New("a flight without origin or destination")
	}
	return nil
}

// departure is a flight's event time.
func departure(f flight, err error) (timeMs int64, _ error) {
	if err != nil {
		return 0, err
	}
	t, err := time.Parse("2006/01/02 15:04", f.Date)
	if err != nil {
		return 0, fmt.Errorf("the date %q is not like 2001/01/31 23:59", f.Date)
	}
	return t.UnixMilli(), nil
}
