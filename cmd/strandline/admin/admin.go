// Package admin holds the commands that look at a cluster and change it: topic, group, txn. They work against every broker that
// speaks Kafka's protocol, print tables for people and JSON for programs, and decide nothing that the broker could.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// DefaultBroker is where a broker listens that was started without flags.
const DefaultBroker = "127.0.0.1:9092"

const defaultWait = 15 * time.Second

// ErrFound ends a command that looked for trouble and found some; the process exits with 2, so that a script can tell it from
// a command that failed.
var ErrFound = errors.New("found")

// Commands returns topic, group and txn.
func Commands() []*cobra.Command {
	return []*cobra.Command{topicCommand(), groupCommand(), txnCommand()}
}

// options are the flags that all have in common.
type options struct {
	brokers []string
	wait    time.Duration
	json    bool
}

// parent makes a command whose subcommands share options.
func parent(use, short string, children ...func(*options) *cobra.Command) *cobra.Command {
	o := new(options)
	cmd := &cobra.Command{Use: use, Short: short}
	flags := cmd.PersistentFlags()
	flags.StringSliceVar(&o.brokers, "brokers", []string{DefaultBroker}, "addresses of the broker, host:port")
	flags.DurationVar(&o.wait, "timeout", defaultWait, "how long to wait for the broker")
	flags.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	for _, child := range children {
		cmd.AddCommand(child(o))
	}
	return cmd
}

// session is one command at work.
type session struct {
	*kadm.Client
	kafka *kgo.Client
	ctx   context.Context
	out   io.Writer
	json  bool
}

// run calls f with clients that give up in time, and says where they looked if nobody answers.
func (o *options) run(cmd *cobra.Command, f func(*session) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(o.brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), o.wait)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return fmt.Errorf("no broker answers at %s: %w; start one with `strandline serve`, or name another with --brokers",
			strings.Join(o.brokers, ","), err)
	}
	return f(&session{Client: kadm.NewClient(client), kafka: client, ctx: ctx, out: cmd.OutOrStdout(), json: o.json})
}

// show prints rows as a table under head, or as a JSON array.
func show[R any](s *session, head string, rows []R, cells func(R) []any) error {
	if s.json {
		if rows == nil {
			rows = []R{}
		}
		return s.encode(rows)
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	for _, r := range rows {
		for i, c := range cells(r) {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, c)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func (s *session) encode(v any) error {
	enc := json.NewEncoder(s.out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// outcome is what became of one thing that a command was to change.
type outcome struct {
	Name    string `json:"name"`
	Done    bool   `json:"done"`
	Message string `json:"message,omitempty"`
}

// report prints what was done, verb being the word for it, and returns the refusals together.
func (s *session) report(verb string, r results) error {
	if s.json {
		if r.all == nil {
			r.all = []outcome{}
		}
		return errors.Join(append([]error{s.encode(r.all)}, r.errs...)...)
	}
	for _, o := range r.all {
		if o.Done {
			fmt.Fprintf(s.out, "%s %s\n", verb, o.Name)
		}
	}
	return errors.Join(r.errs...)
}

// results collects outcomes.
type results struct {
	kind string // of what is named
	all  []outcome
	errs []error
}

func (r *results) add(name, message string, err error) {
	if err == nil {
		r.all = append(r.all, outcome{Name: name, Done: true})
		return
	}
	var code *kerr.Error
	if message == "" && errors.As(err, &code) {
		message = code.Description
	}
	err = fmt.Errorf("%s %s: %w", r.kind, name, err)
	if message != "" {
		err = fmt.Errorf("%w: %s", err, message)
	}
	r.all = append(r.all, outcome{Name: name, Message: err.Error()})
	r.errs = append(r.errs, err)
}

// parseSettings splits key=value words.
func parseSettings(words []string) (map[string]*string, error) {
	settings := map[string]*string{}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("setting %q is not key=value", w)
		}
		settings[key] = &value
	}
	return settings, nil
}
