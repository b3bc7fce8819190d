package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/strandline-io/strandline/broker/journal"
	"github.com/strandline-io/strandline/broker/keeper"
	"github.com/strandline-io/strandline/broker/machine"
	"github.com/strandline-io/strandline/broker/machine/group"
	"github.com/strandline-io/strandline/broker/machine/producer"
	"github.com/strandline-io/strandline/broker/machine/txn"
	"github.com/strandline-io/strandline/broker/segment"
	"github.com/strandline-io/strandline/broker/sequencer"
	"github.com/strandline-io/strandline/internal/failpoint"
	"github.com/strandline-io/strandline/internal/vfs"
)

// engine is everything below the connections: the machine, the journal under it, the partitions' files, the loop
// that drives them and the housekeeping beside it.
type engine struct {
	*sequencer.Sequencer
	journal journal.Journal
	store   *segment.Store
	keeper  *housekeeper // nil when there is no disk
}

// partitionFiles can look into every batch that any configuration accepts: what is stored may come from a start with
// other bounds.
var partitionFiles = segment.Config{MaxDecodedBytes: maxUnpackedBytes(MaxRequestBytesLimit)}

// reportSpace tells the log when there is no space for the journal, and when there is again.
func reportSpace(cfg Config, events func(journal.Event)) func(journal.Event) {
	low := false
	return func(e journal.Event) {
		was := low
		if e.Kind == journal.SpaceChanged {
			low = e.Err != nil
		}
		switch {
		case low && !was:
			cfg.Logger.Warn("there is no space for another journal segment: Produce is refused until there is", "bytes", cfg.JournalSegmentBytes, "error", e.Err)
		case was && !low:
			cfg.Logger.Info("there is space for the journal")
		}
		events(e)
	}
}

// openEngine recovers what the data folder holds and starts the loop over it. Recovery reads the newest snapshot and
// the journal behind it, so its time does not depend on the amount of data (V6).
func openEngine(cfg Config) (*engine, error) {
	inbox := sequencer.NewInbox()
	if cfg.DataDir == "" {
		j := journal.NewMemory(journal.MemoryConfig{MaxUnitBytes: cfg.maxUnitBytes()}, inbox.JournalEvent)
		store, err := segment.Open(vfs.NewMem(), partitionFiles, nil)
		if err != nil {
			return nil, errors.Join(err, j.Close())
		}
		e := &engine{journal: j, store: store}
		e.start(cfg, inbox, keeper.NewRecovery(cfg.machine()))
		return e, nil
	}
	disk := cfg.FS
	if disk == nil {
		disk = vfs.OS(cfg.DataDir)
	}
	if err := disk.MkdirAll("."); err != nil {
		return nil, fmt.Errorf("data folder %s: %w", cfg.DataDir, err)
	}
	if err := checkFolder(disk, cfg.DataDir); err != nil {
		return nil, err
	}
	r := keeper.NewRecovery(cfg.machine())
	j, err := journal.OpenFile(journal.FileConfig{
		FS: disk, Dir: "journal", Durability: cfg.Durability, SegmentBytes: cfg.JournalSegmentBytes,
		MaxUnitBytes: cfg.maxUnitBytes(),
		Restore:      r.Restore, Extents: r.Place,
	}, r.Replay, reportSpace(cfg, inbox.JournalEvent))
	if err != nil {
		return nil, openError(cfg, err)
	}
	failpoint.Hit("recovery.done")
	store, err := segment.Open(disk, partitionFiles, r.Lengths())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the partitions of %s: %w", cfg.DataDir, err), j.Close())
	}
	e := &engine{journal: j, store: store}
	e.start(cfg, inbox, r)
	return e, nil
}

// checkFolder refuses a folder that holds something and was never a broker's: most likely a wrong path was typed, such
// as the parent of the folder that was meant, and an empty broker would start beside what the user looks for.
func checkFolder(disk vfs.FS, dir string) error {
	names, err := disk.List(".")
	if err != nil {
		return fmt.Errorf("data folder %s: %w", dir, err)
	}
	if slices.Contains(names, "journal") {
		return checkJournal(disk, dir)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, ".") && name != "lost+found" && name != clusterIDFile {
			return fmt.Errorf("the data folder %s holds %q and no broker's data: name a new or empty folder, or one that a broker made", dir, name)
		}
	}
	return nil
}

// checkJournal refuses a folder whose journal is gone. What the partitions' files hold counts as far as the journal says: a new
// one would have them removed as files of nobody.
func checkJournal(disk vfs.FS, dir string) error {
	empty, err := journal.Empty(disk, "journal")
	if err != nil || !empty {
		return err
	}
	names, err := disk.List("partitions")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data folder %s: %w", dir, err)
	}
	if len(names) > 0 {
		return fmt.Errorf("the data folder %s holds files of %d partitions and an empty journal, without which they cannot be read: restore the folder from a copy, or name a new one", dir, len(names))
	}
	return nil
}

// start fills the board and runs the loop, whose first operation is the new incarnation.
func (e *engine) start(cfg Config, inbox *sequencer.Inbox, r *keeper.Recovery) {
	sc := sequencer.Config{
		Machine: r.Machine, Journal: e.journal, Inbox: inbox, Board: r.Board(e.journal, e.store), Durability: cfg.Durability,
		LastSeq: r.LastSeq, Clock: cfg.Now,
		EngineStartMs: sequencer.EngineStart(r.Machine.LastNow(), cfg.Now().UnixMilli()),
	}
	sc.OnCounts = newCountLog(cfg).note
	if cfg.DataDir != "" {
		e.keeper = newHousekeeper(cfg, e, sc.Board, r)
		sc.OnSealed, sc.OnDeleted, sc.OnTrimmed, sc.OnMarks = e.keeper.Sealed, e.keeper.Deleted, e.keeper.Trimmed, e.keeper.Marked
	}
	e.Sequencer = sequencer.Start(sc)
	// It can only fail if the loop has stopped already, which Done tells.
	_ = e.Submit(&sequencer.Operation{Op: machine.Op{Body: &machine.Incarnation{Number: e.journal.Incarnation(), Forgets: cfg.Durability == DurabilityWrite}}})
	failpoint.Hit("engine.incarnation")
	if e.keeper != nil {
		e.keeper.start()
	}
}

// Close ends the loop, its housekeeping and the files, in this order, and returns what ended the loop if it was not
// this call.
func (e *engine) Close() error {
	err := e.Sequencer.Close()
	if e.keeper != nil {
		e.keeper.stop()
	}
	return errors.Join(err, e.journal.Close(), e.store.Close())
}

// machine is the part of the configuration that steers decisions.
func (c Config) machine() machine.Config {
	return machine.Config{
		NodeID:                 c.NodeID,
		NoAutoCreate:           c.NoAutoCreateTopics,
		ClampReplicationFactor: c.ClampReplicationFactor,
		DefaultPartitions:      c.DefaultPartitions,
		MessageMaxBytes:        c.MessageMaxBytes,
		Described:              c.describe(),
		May:                    c.may,
		Producer:               producer.Config{ExpirationMs: int64(c.ProducerIDExpirationMs), MaxEntries: c.MaxProducerIDs},
		Txn: txn.Config{
			MaxTimeoutMs: c.TransactionMaxTimeoutMs, IDExpirationMs: int64(c.TransactionalIDExpirationMs), MaxIDs: c.MaxTransactionalIDs,
		},
		Group: group.Config{
			MinSessionTimeoutMs: c.GroupMinSessionTimeoutMs, MaxSessionTimeoutMs: c.GroupMaxSessionTimeoutMs,
			InitialRebalanceDelayMs: c.GroupInitialRebalanceDelayMs,
			MaxGroupSize:            int(c.GroupMaxSize), MaxConsumerGroupSize: int(c.GroupConsumerMaxSize),
			MaxOffsetMetadataChars:   int(c.OffsetMetadataMaxBytes),
			ConsumerSessionTimeoutMs: c.GroupConsumerSessionTimeoutMs, ConsumerHeartbeatMs: c.GroupConsumerHeartbeatIntervalMs,
			ConsumerMinSessionTimeoutMs: c.GroupConsumerMinSessionTimeoutMs, ConsumerMaxSessionTimeoutMs: c.GroupConsumerMaxSessionTimeoutMs,
			ConsumerMinHeartbeatMs: c.GroupConsumerMinHeartbeatIntervalMs, ConsumerMaxHeartbeatMs: c.GroupConsumerMaxHeartbeatIntervalMs,
			AssignmentIntervalMs: c.GroupConsumerAssignmentIntervalMs, ConsumerMinAssignmentIntervalMs: c.GroupConsumerMinAssignmentIntervalMs,
			ConsumerMaxAssignmentIntervalMs: c.GroupConsumerMaxAssignmentIntervalMs,
			Migration:                       c.GroupConsumerMigrationPolicy,
			OffsetsRetentionMs:              int64(c.OffsetsRetentionMinutes) * 60_000, OffsetsCheckMs: c.OffsetsRetentionCheckIntervalMs,
		},
	}
}

// maxUnitBytes is what the largest Produce can become in the journal: its batches, and for each, however small, a copy
// of its header in the segment's footer, and its record.
func (c Config) maxUnitBytes() int64 { return 3*int64(c.MaxRequestBytes) + 16<<20 }

// DataDirInUseError refuses a data folder that another broker has open, be it of this process or of another.
type DataDirInUseError struct{ Dir string }

func (e *DataDirInUseError) Error() string {
	return fmt.Sprintf("the data folder %s is in use by another broker: stop that one, or choose another folder", e.Dir)
}

func (e *DataDirInUseError) Unwrap() error { return vfs.ErrLocked }

// openError says what to do about the commonest failure.
func openError(cfg Config, err error) error {
	if errors.Is(err, vfs.ErrLocked) {
		dir := cfg.DataDir
		if abs, absErr := filepath.Abs(dir); absErr == nil {
			dir = abs
		}
		return &DataDirInUseError{dir}
	}
	return fmt.Errorf("open the data folder %s: %w", cfg.DataDir, err)
}
