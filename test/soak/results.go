package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// piece is one line of the results: consecutive seeds of one leg.
type piece struct {
	Leg      string    `json:"leg"`
	From     uint64    `json:"from"`
	To       uint64    `json:"to"`
	Done     uint64    `json:"done"`
	Unit     string    `json:"unit"`
	Failed   uint64    `json:"failed"`
	Seconds  float64   `json:"seconds"`
	Detail   string    `json:"detail,omitempty"`
	Failures []string  `json:"failures,omitempty"`
	Commit   string    `json:"commit"`
	Go       string    `json:"go"`
	CPUs     int       `json:"cpus"`
	Began    time.Time `json:"began"`
}

// book is the file of the results.
type book struct {
	name   string
	pieces []piece
	bytes  int64    // of whole lines
	file   *os.File // to which pieces are added
}

// openBook reads the file; a missing one is empty. A last line without an end is what a crash left of a piece.
func openBook(name string) (*book, error) {
	b := &book{name: name}
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for n := 1; len(data) > 0; n++ {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			fmt.Fprintf(os.Stderr, "soak: %s, line %d is torn and does not count: %s\n", name, n, shortened(string(line)))
			break
		}
		var p piece
		if err := json.Unmarshal(line, &p); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, n, err)
		}
		if p.Leg == "" || p.From == 0 || p.From > p.To || p.To == math.MaxUint64 {
			return nil, fmt.Errorf("%s, line %d: leg %q from %d to %d", name, n, p.Leg, p.From, p.To)
		}
		b.pieces, b.bytes, data = append(b.pieces, p), b.bytes+int64(len(line))+1, rest
	}
	return b, nil
}

// takeBook opens the file for more, which no other soak may do meanwhile, and reads it.
func takeBook(name string) (*book, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s, which another soak may be writing: %w", name, err), f.Close())
	}
	b, err := openBook(name)
	if err == nil {
		err = f.Truncate(b.bytes)
	}
	if err == nil {
		_, err = f.Seek(b.bytes, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	b.file = f
	return b, nil
}

func (b *book) close() error { return b.file.Close() }

// next is the first seed of a leg that was not run; what a crash interrupted was not.
func (b *book) next(leg string) uint64 {
	next := uint64(1)
	for _, p := range b.pieces {
		if p.Leg == leg && p.Done > 0 {
			next = max(next, p.To+1)
		}
	}
	return next
}

func (b *book) add(p piece) error {
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	b.pieces = append(b.pieces, p)
	_, err = b.file.Write(append(line, '\n'))
	return err
}

// table sums the pieces up, a row for each leg, as Markdown.
func table(pieces []piece) string {
	var order []string
	sums := make(map[string]*row)
	for _, p := range pieces {
		r := sums[p.Leg]
		if r == nil {
			r = &row{unit: p.Unit, counts: make(map[string]uint64)}
			sums[p.Leg], order = r, append(order, p.Leg)
		}
		r.add(p)
	}
	var b strings.Builder
	b.WriteString("| Leg | Done | Seeds | Failed | Time | What happened | Newest commit |\n|---|--:|---|--:|--:|---|---|\n")
	for _, name := range order {
		r := sums[name]
		fmt.Fprintf(&b, "| %s | %s %s | %s | %d | %s | %s | %s |\n", name, grouped(r.done), r.unit, strings.Join(r.ranges(), ", "),
			r.failed, time.Duration(r.seconds*1e9).Round(time.Second), r.happened(), r.commit)
	}
	return b.String()
}

type row struct {
	done, failed uint64
	seconds      float64
	unit, commit string
	spans        [][2]uint64
	labels       []string
	counts       map[string]uint64
}

// count is one number of a detail: "Crashes:7", or "7 faults from outside".
var count = regexp.MustCompile(`(\w+):(\d+)|(\d+) ([^,;]+)`)

func (r *row) add(p piece) {
	r.done += p.Done
	r.failed += p.Failed
	r.seconds += p.Seconds
	r.commit = p.Commit
	if p.Done > 0 {
		r.spans = append(r.spans, [2]uint64{p.From, p.To})
	}
	for _, m := range count.FindAllStringSubmatch(p.Detail, -1) {
		label, number := strings.ToLower(m[1])+m[4], m[2]+m[3]
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			continue
		}
		if _, ok := r.counts[label]; !ok {
			r.labels = append(r.labels, label)
		}
		r.counts[label] += n
	}
}

// happened sums up what the pieces told beside their number of seeds.
func (r *row) happened() string {
	var parts []string
	for _, label := range r.labels {
		if r.counts[label] == 0 {
			continue
		}
		parts = append(parts, grouped(r.counts[label])+" "+label)
	}
	return strings.Join(parts, ", ")
}

// ranges are the numbers that were run, neighbours joined.
func (r *row) ranges() (out []string) {
	spans := slices.Clone(r.spans)
	slices.SortFunc(spans, func(a, b [2]uint64) int { return int(int64(a[0] - b[0])) })
	for i := 0; i < len(spans); {
		s := spans[i]
		for i++; i < len(spans) && spans[i][0] <= s[1]+1; i++ {
			s[1] = max(s[1], spans[i][1])
		}
		out = append(out, span(s[0], s[1]))
	}
	return out
}

// grouped writes 1234567 as 1,234,567.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
