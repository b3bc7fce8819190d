package peers

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Java is the class path of Apache Kafka's programs and of own ones that lie as sources in a folder.
type Java struct {
	classes string // of the own programs
}

// CompileJava compiles the Java sources of a folder, once for what they say.
func CompileJava(t testing.TB, folder string) *Java {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(folder, "*.java"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("no Java sources in %s (%v)", folder, err)
	}
	sum := sha256.New()
	for _, s := range sources {
		b, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(s), len(b), b)
	}
	jars := kafkaJars(t)
	sum.Write([]byte(jars))
	dir := filepath.Join(CacheDir(t), fmt.Sprintf("java-%x", sum.Sum(nil)[:8]))
	once(t, filepath.Join(dir, ".complete"), func() error {
		_, err := TryRun(exec.Command("javac", append([]string{"-Xlint:all", "-Werror", "-d", dir, "-cp", jars}, sources...)...))
		return err
	})
	return &Java{classes: dir}
}

// Command is a program in a process of its own.
func (j *Java) Command(t testing.TB, class string, args ...string) *exec.Cmd {
	t.Helper()
	return java(t, "256m", kafkaJars(t)+string(os.PathListSeparator)+j.classes, class, args...)
}

// Runner runs Java programs one after the other in one process: most of them take a hundredth of the time that starting one
// takes. Its sources must be among those compiled (Runner.java).
type Runner struct {
	in   io.WriteCloser
	out  *bufio.Reader
	kill func()
	log  *bytes.Buffer
}

// runsWithin bounds how long one program of a Runner may take.
const runsWithin = 2 * time.Minute

// Runner starts the process. It ends with the test.
func (j *Java) Runner(t testing.TB) *Runner {
	t.Helper()
	cmd := j.Command(t, "Runner")
	r := &Runner{log: &bytes.Buffer{}}
	cmd.Stderr = r.log
	dieWithParent(cmd)
	var err error
	if r.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.kill = func() { cmd.Process.Kill() }
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return r
}

// Run runs the main method of a class and returns its exit code and what it printed.
func (r *Runner) Run(t testing.TB, class string, args ...string) (code int, out, errors string) {
	t.Helper()
	slow := time.AfterFunc(runsWithin, r.kill)
	defer slow.Stop()
	what := class + " " + strings.Join(args, " ")
	if _, err := io.WriteString(r.in, strings.Join(append([]string{class}, args...), "\x1f")+"\n"); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, r.log)
	}
	var nOut, nErr int
	head, err := r.out.ReadString('\n')
	if err == nil {
		_, err = fmt.Sscanf(head, "exit %d %d %d\n", &code, &nOut, &nErr)
	}
	both := make([]byte, nOut+nErr)
	if err == nil {
		_, err = io.ReadFull(r.out, both)
	}
	if err != nil {
		t.Fatalf("%s: the process ended, or answered %q: %v", what, head, err)
	}
	return code, string(both[:nOut]), string(both[nOut:])
}

// ToolClass is the class that one of Apache Kafka's scripts runs, named without ".sh".
func ToolClass(t testing.TB, name string) string {
	t.Helper()
	class, ok := toolClasses[name]
	if !ok {
		t.Fatalf("BUG: no such tool: %s", name)
	}
	return class
}
