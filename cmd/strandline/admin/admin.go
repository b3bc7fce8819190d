// Package admin holds the commands that look at a cluster and change it: topic, group, txn. They work against every broker that
// speaks Kafka's protocol, print tables for people and JSON for programs, and decide nothing that the broker could.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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

// exits is the part of a command's help that scripts need.
const exits = "Exit codes: 0 if all is done, 1 if anything is refused or fails, a wrong flag and a broker that does not answer included"

// parent makes a command whose subcommands share options. codes are its exit codes.
func parent(use, short, codes string, children ...func(*options) *cobra.Command) *cobra.Command {
	o := new(options)
	cmd := &cobra.Command{Use: use, Short: short, Long: short + ".\n\n" + codes}
	flags := cmd.PersistentFlags()
	flags.StringSliceVar(&o.brokers, "brokers", []string{DefaultBroker}, "addresses of the broker, host:port")
	flags.DurationVar(&o.wait, "timeout", defaultWait, "how long to wait for an answer of the broker")
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
	err   io.Writer
	json  bool
}

// run calls f with clients that give up in time, and says where they looked if nobody answers.
func (o *options) run(cmd *cobra.Command, f func(*session) error) error {
	if o.wait <= 0 {
		return fmt.Errorf("--timeout is %v: use more than 0", o.wait)
	}
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
	return f(&session{Client: kadm.NewClient(client), kafka: client, ctx: ctx, out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), json: o.json})
}

// show prints rows as a table under head, or as a JSON array. Where there are none it prints no table, and says so beside
// the output.
func show[R any](s *session, head string, rows []R, cells func(R) []any) error {
	if s.json {
		if rows == nil {
			rows = []R{}
		}
		return s.encode(rows)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(s.err, "none")
		return err
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
	Name             string `json:"name,omitempty"`
	*OpenTransaction        // in place of a name
	Done             bool   `json:"done"`
	Message          string `json:"message,omitempty"`
}

func (o outcome) label() string {
	if o.OpenTransaction != nil {
		return o.OpenTransaction.String()
	}
	return o.Name
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
			fmt.Fprintf(s.out, "%s %s\n", verb, o.label())
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

func (r *results) add(name string, err error) { r.addOutcome(outcome{Name: name}, err) }

func (r *results) addOutcome(o outcome, err error) {
	if o.Done = err == nil; !o.Done {
		err = fmt.Errorf("%s %s: %w", r.kind, o.label(), err)
		o.Message = err.Error()
		r.errs = append(r.errs, err)
	}
	r.all = append(r.all, o)
}

// refusal is a broker's error code with what that broker says about it.
type refusal struct {
	code    *kerr.Error
	message string
}

func (r *refusal) Error() string { return r.code.Message + ": " + r.message }
func (r *refusal) Unwrap() error { return r.code }

// refused puts a broker's message, if it sent one, in place of what the code says in general, which can be beside the point.
func refused(err error, message string) error {
	code, ok := errors.AsType[*kerr.Error](err)
	if !ok || message == "" {
		return err
	}
	return &refusal{code, message}
}

// once returns names in their order, each once.
func once(names []string) []string {
	var all []string
	for _, name := range names {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// count is n things, noun being the word for one.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// asKnown replaces each of states by the known one that differs in case only. Brokers answer an unknown state with an empty
// list, as if nothing were in it.
func asKnown(kind string, states, known []string) error {
	for i, state := range states {
		at := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, state) })
		if at < 0 {
			return fmt.Errorf("no %s can be in state %q, only in one of %s", kind, state, strings.Join(known, ", "))
		}
		states[i] = known[at]
	}
	return nil
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
