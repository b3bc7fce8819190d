package admin

import (
	"strings"
	"testing"

	"github.com/strandline-io/strandline/broker/brokertest"
)

// says runs a command that must fail with that error and print nothing.
func (s shell) says(line, want string) {
	s.t.Helper()
	out, errOut, err := s.both(line)
	if err == nil || err.Error() != want || out != "" || errOut != "" {
		s.t.Errorf("%s:\nfails with %v\nwant       %s\nprints %q and %q", line, err, want, out, errOut)
	}
}

// prints runs a command that must succeed and print exactly that.
func (s shell) prints(line, wantOut, wantErrOut string) {
	s.t.Helper()
	out, errOut, err := s.both(line)
	if err != nil || out != wantOut || errOut != wantErrOut {
		s.t.Errorf("%s: %v\nprints %q and %q\nwant   %q and %q", line, err, out, errOut, wantOut, wantErrOut)
	}
}

// TestOneReasonEach: the broker's own words stand in place of the general ones, and nothing is said twice.
func TestOneReasonEach(t *testing.T) {
	sh := shell{t, brokertest.Start(t).Addr()}
	sh.want("topic create t --partitions 5")
	const (
		noTopic = "UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition."
		noGroup = "GROUP_ID_NOT_FOUND: The group id does not exist."
		noID    = "TRANSACTIONAL_ID_NOT_FOUND: The transactionalId could not be found."
		cannot  = "INVALID_PARTITIONS: topic t has 5 partitions and cannot get 2: they can only grow"
	)
	sh.says("topic alter t --partitions 2", "topic t: "+cannot)
	sh.says("topic alter t --partitions 2 --config segment.ms=7", "topic t: its settings are changed, but no partitions are added: "+cannot)
	sh.says("topic alter t --partitions -3", "--partitions is -3: use 1 or more")
	sh.says("topic create t", "topic t: TOPIC_ALREADY_EXISTS: topic t exists already")
	sh.says("topic describe u t v", "topic u: "+noTopic+"\ntopic v: "+noTopic)
	sh.says("txn producers u", "topic u: "+noTopic)
	sh.says("group delete g", "group g: "+noGroup)
	sh.says("group describe g h", "group g: "+noGroup+"\ngroup h: "+noGroup)
	sh.says("txn describe x y", "transactional id x: "+noID+"\ntransactional id y: "+noID)
	sh.says("txn describe x --json", "transactional id x: "+noID)
	sh.says("txn abort x", "transactional id x: "+noID)
	sh.says("topic list --timeout 0s", "--timeout is 0s: use more than 0")
}

func TestArgumentsAreAskedFor(t *testing.T) {
	sh := shell{t, "127.0.0.1:1"}
	words := map[string]string{
		"topic describe": "TOPIC", "topic create": "TOPIC", "topic alter": "TOPIC", "topic delete": "TOPIC", "txn producers": "TOPIC",
		"group describe": "GROUP", "group delete": "GROUP", "txn describe": "TRANSACTIONAL-ID",
	}
	for line, word := range words {
		sh.says(line, "no "+word+" is named; usage: strandline "+line+" "+word+"... [flags]")
	}
	sh.says("group reset-offsets", "no GROUP is named; usage: strandline group reset-offsets GROUP [flags]")
	sh.says("group reset-offsets g h", `one GROUP is wanted, the argument "h" is one too many; usage: strandline group reset-offsets GROUP [flags]`)
	for _, line := range []string{"topic list", "group list", "txn list", "txn find-hanging"} {
		sh.says(line+" word", `the argument "word" is one too many; usage: strandline `+line+" [flags]")
	}
}

// TestNothingThere: standard output is empty, and JSON is a list for programs.
func TestNothingThere(t *testing.T) {
	sh := shell{t, brokertest.Start(t).Addr()}
	for _, line := range []string{"topic list", "group list", "txn list", "txn find-hanging"} {
		sh.prints(line, "", "none\n")
		sh.prints(line+" --json", "[]\n", "")
	}
}

// TestOrder: what is done is told in the order in which it was asked for, once each.
func TestOrder(t *testing.T) {
	sh := shell{t, brokertest.Start(t).Addr()}
	sh.prints("topic create c a b a", "created c\ncreated a\ncreated b\n", "")
	sh.prints("topic alter c a --partitions 2 --config segment.ms=7", "changed c\nchanged a\n", "")
	for _, group := range []string{"h", "g"} {
		sh.want("group reset-offsets " + group + " --topic a --to-latest --execute")
	}
	sh.prints("group delete h g h", "deleted h\ndeleted g\n", "")
	sh.prints("topic delete c a b", "deleted c\ndeleted a\ndeleted b\n", "")
}

func TestClampedOffsetsAreMarked(t *testing.T) {
	sh := shell{t, brokertest.Start(t).Addr()}
	sh.want("topic create t")
	produce(t, client(t, sh.addr), "t", 2)
	f := func(flags string, after int64, to string) {
		t.Helper()
		var moved []movedOffset
		sh.object("group reset-offsets g --topic t "+flags, &moved)
		if len(moved) != 1 || moved[0].After != after || moved[0].ClampedTo != to {
			t.Errorf("%s moves %+v, want to %d, clamped to %q", flags, moved, after, to)
		}
	}
	f("--to-offset 2", 2, "")
	f("--to-offset 3", 2, "end")
	f("--to-offset -1", 0, "start")
	f("--shift-by 9", 2, "end")
	f("--shift-by -9", 0, "start")
	f("--to-latest", 2, "")
	sh.prints("group reset-offsets g --topic t --to-offset 3 --execute", ""+
		"TOPIC  PARTITION  BEFORE  AFTER  CLAMPED TO\n"+
		"t      0          -       2      end\n", "")
	sh.want("group describe g", "group g, Empty, 0 members\n")
	sh.want("topic describe t", ", 1 partition\n")
}

// TestHelpHasExitCodes: scripts are written from it.
func TestHelpHasExitCodes(t *testing.T) {
	for _, c := range Commands() {
		if !strings.Contains(c.Long, "\n\nExit codes: 0 ") {
			t.Errorf("%s --help: %s", c.Name(), c.Long)
		}
	}
}
