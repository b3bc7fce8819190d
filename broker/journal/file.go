package journal

// File is a journal in files. It keeps three goroutines: one writes, one syncs, one prepares and frees segments.
type File struct{ Journal }

// OpenFile opens the journal in cfg.Dir, making it if it is new, and takes its lock; a folder that another process
// (or another File) has open is refused with vfs.ErrLocked. Before it returns, it calls in this order and from this
// goroutine: cfg.Restore, cfg.Extents, and replay for every unit after the snapshot. Everything it replayed is
// durable when it returns. Damage is ErrCorrupt, with file and offset. events may be called from then on.
func OpenFile(cfg FileConfig, replay func(Stored) error, events func(Event)) (*File, error) {
	panic("BUG: not built yet")
}
