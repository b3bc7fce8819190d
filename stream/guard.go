package stream

import (
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
)

// guarded turns a panic of user code into an error that says where.
type guarded struct{ p Processor }

func (g guarded) OnRecord(ctx Context, m *Message) (err error) {
	defer recovered(&err)
	return g.p.OnRecord(ctx, m)
}

func (g guarded) OnWatermark(ctx Context, watermarkMs int64) (done bool, err error) {
	defer recovered(&err)
	return g.p.OnWatermark(ctx, watermarkMs)
}

func (g guarded) OnEnd(ctx Context) (done bool, err error) {
	defer recovered(&err)
	return g.p.OnEnd(ctx)
}

func recovered(err *error) {
	v := recover()
	if v == nil {
		return
	}
	if text, ok := v.(string); ok && strings.HasPrefix(text, "BUG:") {
		panic(v)
	}
	*err = &PanicError{Value: v, Location: panicLocation(), Stack: debug.Stack()}
}

// panicLocation finds the frame below the runtime's panic frames.
func panicLocation() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	panicking := false
	for {
		f, more := frames.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		if panicking && !inRuntime {
			return fmt.Sprintf("%s:%d", shortPath(f.File), f.Line)
		}
		panicking = panicking || inRuntime
		if !more {
			return "unknown"
		}
	}
}

// shortPath keeps a file's folder and name: enough to find it, and the same on every machine.
func shortPath(file string) string {
	dir, name := path.Split(file)
	return path.Join(path.Base(dir), name)
}
