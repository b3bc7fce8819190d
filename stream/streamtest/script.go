package streamtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-io/strandline/stream"
)

// RewriteEnv is the environment variable that makes RunScripts write what it saw instead of comparing.
const RewriteEnv = "STRANDLINE_REWRITE"

// Job is what a script runs: a plan and the sinks that it may look at.
type Job struct {
	Plan  *stream.Plan
	Sinks []*Sink
}

// RunScripts runs every script file that matches pattern, each against a fresh job from newJob, and compares it with
// what it says. A line that begins with two blanks is output of the command before; '#' begins a comment. The commands:
//
//	options workers=1 seed=0 chunk=0 fetch=16 commit=100ms crashes=0   (only first)
//	write TOPIC [p=PARTITION] [k=KEY] [t=TIME] VALUE   a record; "null" is a tombstone; times are 90s, 1h30m or 5 (ms)
//	run               until nothing is left to do
//	advance DURATION  let virtual time pass
//	crash WORKER      kill a worker; the next run starts it again
//	stop              stop all workers gracefully
//	topic NAME        the committed records
//	sink NAME         the visible rows
//	task NAME         the newest checkpoint of a task, in short
//	state             running, finished, stopped or the error
func RunScripts(t *testing.T, pattern string, newJob func(t *testing.T) Job) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no script matches %s (%v)", pattern, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := runScript(t, string(content), newJob(t))
			if err != nil {
				t.Fatalf("%s:%v", file, err)
			}
			if os.Getenv(RewriteEnv) != "" {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(content), got); diff != "" {
				t.Fatalf("%s (-script +run; %s=1 rewrites it):\n%s", file, RewriteEnv, diff)
			}
		})
	}
}

// script is one running script.
type script struct {
	t    testing.TB
	job  Job
	opts Options
	r    *Runner
}

// runScript returns the script with the output of this run.
func runScript(t testing.TB, text string, job Job) (string, error) {
	s := &script{t: t, job: job}
	var out strings.Builder
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		out.WriteString(line + "\n")
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		result, err := s.command(words[0], words[1:])
		if err != nil {
			return "", fmt.Errorf("%d: %s: %w", n+1, line, err)
		}
		for _, l := range result {
			out.WriteString("  " + l + "\n")
		}
	}
	return out.String(), nil
}

func (s *script) command(verb string, args []string) ([]string, error) {
	if verb == "options" {
		if s.r != nil {
			return nil, fmt.Errorf("options come first")
		}
		return nil, s.options(args)
	}
	if s.r == nil {
		s.r = New(s.t, s.job.Plan, s.opts)
	}
	switch verb {
	case "run":
		s.r.Run()
		return nil, nil
	case "stop":
		s.r.Stop()
		return nil, nil
	case "state":
		return []string{s.state()}, nil
	}
	if len(args) == 0 {
		return nil, fmt.Errorf("%q needs a word behind it, or is no command", verb)
	}
	switch verb {
	case "write":
		return nil, s.write(args)
	case "advance":
		ms, err := parseTime(args[0])
		if err == nil {
			s.r.Advance(time.Duration(ms) * time.Millisecond)
		}
		return nil, err
	case "crash":
		n, err := strconv.Atoi(args[0])
		if err != nil || n < 0 || n >= len(s.r.processes) {
			return nil, fmt.Errorf("no running worker %q", args[0])
		}
		s.r.Crash(n)
		return nil, nil
	case "topic":
		return s.topic(args[0])
	case "sink":
		return s.sink(args[0])
	case "task":
		return s.task(args[0])
	}
	return nil, fmt.Errorf("unknown command %q", verb)
}

func (s *script) options(args []string) error {
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if name == "commit" {
			ms, err := parseTime(value)
			if err != nil {
				return err
			}
			s.opts.CommitInterval = time.Duration(ms) * time.Millisecond
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("option %q: %w", arg, err)
		}
		switch name {
		case "workers":
			s.opts.Workers = n
		case "seed":
			s.opts.Seed = uint64(n)
		case "chunk":
			s.opts.ChunkResults = n
		case "fetch":
			s.opts.FetchRecords = n
		case "crashes":
			s.opts.CrashEvery = n
		default:
			return fmt.Errorf("unknown option %q", name)
		}
	}
	return nil
}

// parseTime reads a Go duration, or a number of milliseconds.
func parseTime(text string) (ms int64, err error) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return ms, nil
	}
	d, err := time.ParseDuration(text)
	return d.Milliseconds(), err
}

func (s *script) write(args []string) error {
	topic, args := args[0], args[1:]
	if len(s.r.cluster.topics[topic]) == 0 {
		return fmt.Errorf("the job has no topic %q", topic)
	}
	partition, timeMs := -1, int64(0)
	var key, value []byte
	for len(args) > 0 {
		name, word, ok := strings.Cut(args[0], "=")
		var err error
		switch {
		case ok && name == "p":
			partition, err = strconv.Atoi(word)
		case ok && name == "k":
			key = []byte(word)
		case ok && name == "t":
			timeMs, err = parseTime(word)
		default:
			ok = false
		}
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return fmt.Errorf("a value is missing")
	}
	if text := strings.Join(args, " "); text != "null" {
		value = []byte(text)
	}
	if partition >= len(s.r.cluster.topics[topic]) {
		return fmt.Errorf("topic %s has no partition %d", topic, partition)
	}
	if partition < 0 {
		s.r.Write(topic, key, value, timeMs)
	} else {
		s.r.WriteTo(topic, partition, key, value, timeMs)
	}
	return nil
}

func (s *script) state() string {
	switch {
	case s.r.Err() != nil:
		return "error: " + s.r.Err().Error()
	case s.r.Finished():
		return "finished"
	case len(s.r.running()) == 0:
		return "stopped"
	}
	return "running"
}

func (s *script) topic(name string) ([]string, error) {
	if len(s.r.cluster.topics[name]) == 0 {
		return nil, fmt.Errorf("the job has no topic %q", name)
	}
	var out []string
	for _, m := range s.r.Topic(name) {
		value := "null"
		if m.Value != nil {
			value = strings.ToValidUTF8(string(m.Value), "?")
		}
		line := fmt.Sprintf("p%d t=%d %s: %s", m.Partition, m.TimestampMs, m.Key, printable(value))
		for _, h := range m.Headers {
			line += fmt.Sprintf(" %s=%s", h.Key, h.Value)
		}
		out = append(out, line)
	}
	return out, nil
}

// printable shows the type byte of an intermediate stream as a word.
func printable(value string) string {
	for i, word := range []string{"user ", "watermark ", "end "} {
		if rest, ok := strings.CutPrefix(value, string(rune(i))); ok {
			return word + rest
		}
	}
	return value
}

func (s *script) sink(name string) ([]string, error) {
	i := slices.IndexFunc(s.job.Sinks, func(sink *Sink) bool { return sink.Name() == name })
	if i < 0 {
		return nil, fmt.Errorf("the job has no sink %q", name)
	}
	var out []string
	for _, row := range s.job.Sinks[i].Place.Rows() {
		value, err := json.Marshal(row.Value)
		if err != nil {
			return nil, err
		}
		out = append(out, fmt.Sprintf("#%d t=%d %s: %s", row.RowSequence, row.TimestampMs, row.Key, value))
	}
	return out, nil
}

func (s *script) task(name string) ([]string, error) {
	c := s.r.committal[name]
	if c == nil {
		return []string{"no checkpoint"}, nil
	}
	watermark := "none"
	if c.Out.Watermark != nil {
		watermark = strconv.FormatInt(*c.Out.Watermark, 10)
	}
	line := fmt.Sprintf("commit %d watermark %s", c.Commit, watermark)
	if c.Out.Idle {
		line += " idle"
	}
	if c.Ended {
		line += " ended"
	}
	for _, in := range c.Inputs {
		line += fmt.Sprintf(" %s@%d", in.Stream, in.Position.Offset)
	}
	counters, err := json.Marshal(c.Counters)
	return []string{line + " " + string(counters)}, err
}
