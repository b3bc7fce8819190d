// Package step is the frame of a client's program: `PROGRAM BROKER STEP [COUNT]` prints ok or ends with what was wrong.
package step

import (
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"time"
)

// Patience bounds how long a step waits for the next record, or for an operation that works at last.
const Patience = time.Minute

// Main runs the step that the command line names.
func Main(steps map[string]func(broker string) error) {
	log.SetFlags(log.Lmicroseconds)
	if len(os.Args) < 3 || steps[os.Args[2]] == nil {
		log.Fatal("usage: PROGRAM BROKER STEP [COUNT]")
	}
	if err := steps[os.Args[2]](os.Args[1]); err != nil {
		log.Fatal(err)
	}
	fmt.Println("ok")
}

// Count is the third argument.
func Count() int {
	n, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	return n
}

// Values are v0 and so on, or the like with another prefix.
func Values(prefix string, from, to int) (values []string) {
	for i := from; i < to; i++ {
		values = append(values, prefix+strconv.Itoa(i))
	}
	return values
}

// Same compares values in any order; an error says how they differ.
func Same(got, want []string) error {
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		return fmt.Errorf("%d values, %d of them distinct, want %d", len(got), len(slices.Compact(got)), len(want))
	}
	return nil
}

// Retry calls f until it works, or Patience is over.
func Retry(f func() error) error {
	until := time.Now().Add(Patience)
	for {
		err := f()
		if err == nil || time.Now().After(until) {
			return err
		}
		log.Printf("again after %v", err)
		Pause(100 * time.Millisecond)
	}
}

// Pause makes a load slow enough to be met by what happens to the broker.
func Pause(d time.Duration) { <-time.After(d) }
