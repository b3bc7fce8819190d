// Command count reads `go test -json` from standard input, shows what failed and the packages' results, and ends with
// the number of tests. It exits with 1 if anything failed or nothing ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

type key struct{ pkg, test string }

func main() {
	label := "tests"
	if len(os.Args) > 1 {
		label = os.Args[1]
	}
	var passed, failed, skipped int
	output := map[key][]string{}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 64<<20)
	for in.Scan() {
		var e event
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			fmt.Println(in.Text()) // a build error, as it came
			continue
		}
		k := key{e.Package, e.Test}
		switch e.Action {
		case "output", "build-output":
			output[k] = append(output[k], e.Output)
		case "build-fail":
			failed++
			fmt.Print(strings.Join(output[k], ""))
		case "pass", "skip", "fail":
			if e.Test == "" {
				fmt.Printf("%-5s %s (%.1fs)\n", e.Action, e.Package, e.Elapsed)
			}
			switch {
			case e.Action == "fail":
				failed++
				fmt.Print(strings.Join(output[k], ""))
			case e.Test == "":
			case e.Action == "pass":
				passed++
			default:
				skipped++
			}
			delete(output, k)
		}
	}
	fmt.Printf("%s: %d passed, %d failed, %d skipped\n", label, passed, failed, skipped)
	if failed > 0 || passed == 0 || in.Err() != nil {
		os.Exit(1)
	}
}
