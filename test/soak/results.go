package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
}

// openBook reads the file; a missing one is empty.
func openBook(name string) (*book, error) {
	b := &book{name: name}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var p piece
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, n, err)
		}
		b.pieces = append(b.pieces, p)
	}
	return b, lines.Err()
}

// next is the first seed of a leg that was not run.
func (b *book) next(leg string) uint64 {
	next := uint64(1)
	for _, p := range b.pieces {
		if p.Leg == leg {
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
	f, err := os.OpenFile(b.name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	b.pieces = append(b.pieces, p)
	return errors.Join(err, f.Close())
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
	r.spans = append(r.spans, [2]uint64{p.From, p.To})
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
