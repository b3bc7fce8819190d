// Package failpoint lets a process die, or stand still, at a named point of its code, for the crash drill (test/drill).
// Without the build tag failpoints it is nothing: Hit is an empty function and no environment is looked at.
//
// With the tag, the environment variable STRANDLINE_FAILPOINTS names points and what happens there:
//
//	STRANDLINE_FAILPOINTS=journal.written:3,recovery.renamed:1:stop
//
// At the third hit of journal.written the process kills itself with SIGKILL; at the first of recovery.renamed it stops
// itself with SIGSTOP and goes on at SIGCONT. Before that it writes the line "failpoint NAME hit N" to its standard error.
// A name that is not in Points ends the process at its start with exit code 2. Arm says the same to a running process.
package failpoint

// Variable is the environment variable.
const Variable = "STRANDLINE_FAILPOINTS"

// Point is one place in the code.
type Point struct {
	Name string
	In   string // the process that passes it: Broker or Worker
	When string // what has just been done and what comes next
}

// The processes.
const (
	Broker = "broker"
	Worker = "worker"
)

// Points are all there are. Each name is hit at one place in the code.
var Points = []Point{
	{"sequencer.decided", Broker, "a group is decided and the state has moved; nothing is given to the journal"},
	{"journal.written", Broker, "a group is written, not synced"},
	{"journal.unsynced", Broker, "groups are written and known to be; their sync has not begun"},
	{"journal.synced", Broker, "a group is synced, nothing of it is said"},
	{"sequencer.durable", Broker, "the loop knows that a group is durable; its views are not published"},
	{"sequencer.published", Broker, "what there is of views is published, no reply is delivered"},
	{"journal.rolled", Broker, "a segment's file is made, its name not durable"},
	{"journal.footer-half", Broker, "a sealed segment's footer is written, the pointer to it not"},
	{"journal.footer-written", Broker, "footer and pointer are written, not synced"},
	{"journal.footer-synced", Broker, "a segment is sealed, nobody knows"},
	{"journal.freed", Broker, "a segment is removed or renamed to a spare, the folder not synced"},
	{"snapshot.half", Broker, "a snapshot's header and first piece are written under a temporary name"},
	{"snapshot.written", Broker, "a snapshot is written and synced under its temporary name"},
	{"snapshot.renamed", Broker, "a snapshot has its name, the folder is not synced"},
	{"snapshot.done", Broker, "a snapshot is durable; nothing is freed for it"},
	{"shelve.half", Broker, "half of the partitions of a piece of a journal segment are copied"},
	{"shelve.copied", Broker, "all is copied, nothing synced"},
	{"shelve.synced", Broker, "the copies are synced; the lengths are not journaled"},
	{"shelve.recorded", Broker, "the lengths are durable; no reader has moved, nothing is freed"},
	{"recovery.restored", Broker, "the snapshot is restored, no unit replayed"},
	{"recovery.replayed", Broker, "everything is replayed, nothing is changed on the disk"},
	{"recovery.removed", Broker, "what is no longer anything is removed; nothing is rewritten"},
	{"recovery.rewrite-half", Broker, "the new segment's header is written and nothing of what must be rewritten"},
	{"recovery.rewritten", Broker, "the new segment is written and synced under its temporary name"},
	{"recovery.renamed", Broker, "the new segment has its name, the folder is not synced"},
	{"recovery.durable", Broker, "the new segment is durable, what it replaces is still there"},
	{"recovery.done", Broker, "the journal is open; the partitions' files are not"},
	{"engine.incarnation", Broker, "the new incarnation is on its way to the journal; no client has been answered"},

	{"start.topics", Worker, "the first start has made the topics; there is no job record"},
	{"start.produced", Worker, "the job record is produced, its transaction open"},
	{"start.committed", Worker, "the job record is committed"},
	{"slot.joined", Worker, "the group has answered; the transactional id is not taken"},
	{"slot.taken", Worker, "the transactional id is taken, nothing restored"},
	{"restore.offsets", Worker, "a task's committed offsets are read, its checkpoint not"},
	{"restore.checkpoint", Worker, "a task's checkpoint is read, its changelogs not"},
	{"restore.done", Worker, "a task is restored, its sinks are not open"},
	{"restore.sink", Worker, "a sink has published what its token held"},
	{"commit.prepared", Worker, "the sinks have prepared; nothing of the commit is produced"},
	{"commit.flushed", Worker, "checkpoints are acknowledged; no offsets in the transaction"},
	{"commit.offsets", Worker, "offsets are in the transaction, EndTxn not sent"},
	{"commit.ended", Worker, "EndTxn is answered; no sink has committed"},
	{"commit.published", Worker, "the sinks have committed; nobody knows"},
	{"drop.ended", Worker, "a life is over, its transaction open; the transactional id is not taken again"},
	{"revoke.begun", Worker, "the group takes tasks away; the last commit has not begun"},
	{"folder.part", Worker, "a block is written and synced under its temporary name"},
	{"folder.staged", Worker, "a block has its name, the folder is not synced"},
	{"folder.assembled", Worker, "a blob is assembled, not linked to its name"},
	{"folder.linked", Worker, "a blob is linked, the folder not synced, its blocks still staged"},
	{"folder.dropping", Worker, "the first of a published blob's staged blocks is removed"},
	{"azure.staged", Worker, "Put Block is answered, Put Block List not sent"},
	{"azure.published", Worker, "Put Block List is answered"},
}
