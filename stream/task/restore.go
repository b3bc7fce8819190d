package task

import (
	"context"
	"fmt"
	"time"

	"github.com/strandline-io/strandline/stream/state"
	"github.com/strandline-io/strandline/stream/task/core"
	"github.com/strandline-io/strandline/stream/task/protocol"
)

const (
	restorePause    = 50 * time.Millisecond
	maxRestorePause = 2 * time.Second
	// restoreDeadline bounds one try. A large changelog that takes longer continues where the try ended.
	restoreDeadline = 2 * time.Minute
)

// restore finds out everything about a task, again and again while the cluster is away.
func (w *worker) restore(own core.Ownership) {
	l := w.life
	stores, ctx := w.stores.Lend(l.ctx, own.Task)
	l.run(func(context.Context) {
		for pause := restorePause; ; pause = min(2*pause, maxRestorePause) {
			restored, err := w.tryRestore(ctx, own, stores)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				w.answer(l, restored)
				return
			}
			if protocol.Final(err) {
				w.box.post(fatal{fmt.Errorf("task: restoring %s: %w", own.Task.Name(), err)})
				return
			}
			w.log.Warn("cannot restore a task yet", "task", own.Task.Name(), "err", err)
			t := time.NewTimer(pause)
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-t.C:
			}
		}
	})
}

func (w *worker) tryRestore(ctx context.Context, own core.Ownership, stores []state.Store) (core.Restored, error) {
	ctx, cancel := withDeadline(ctx, restoreDeadline, "restoring task "+own.Task.Name())
	defer cancel()
	return protocol.Restore(ctx, w.run.client, w.plan, w.run.topicIDs, own, stores, w.cfg.Now().UnixMilli())
}
