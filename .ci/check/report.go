package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// event is one line of `go doc cmd/test2json`, or of `go help buildjson`.
type event struct {
	Action, Package, Test, ImportPath, Output string
	Elapsed                                   float64 // seconds, of a test or a package that has ended
}

// report stores the output of go test -json in a file, and prints it as go test does: a line for each package, and the output
// of failed tests. Then it prints the slowest tests, because a run becomes slow by one test after the other.
func report(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: check report FILE <events")
	}
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	slow := &slowest{}
	err = show(io.TeeReader(os.Stdin, f), os.Stdout, slow.add)
	slow.print(os.Stdout)
	return errors.Join(err, f.Close())
}

// slowest are the ends of the slowest tests, the slowest first. Time that a test waits for others counts too.
type slowest []event

const maxSlowest = 8

// add takes the end of a test. Subtests are left out, because their time is that of their test too.
func (s *slowest) add(e event) {
	if e.Action != "pass" && e.Action != "fail" || e.Test == "" || strings.Contains(e.Test, "/") {
		return
	}
	*s = append(*s, e)
	slices.SortStableFunc(*s, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	*s = (*s)[:min(len(*s), maxSlowest)]
}

func (s *slowest) print(w io.Writer) {
	for _, e := range *s {
		fmt.Fprintf(w, "slow: %6.1fs  %s %s\n", e.Elapsed, e.Package, e.Test)
	}
}

// count combines several runs of the same tests, and prints "N passed, N failed". It fails if a test failed in one run, if no
// test ran, or if a test was skipped in all runs. A test that counts allocations may be skipped under the race detector.
func count(files []string) error {
	return judge(files, os.Stdout)
}

// show prints the output of a package after its end, without that of tests that have passed. It also calls each for all events.
func show(r io.Reader, w io.Writer, each func(event)) error {
	packages := map[string][]event{}
	return scan(r, func(e event) {
		each(e)
		switch {
		case e.Action == "build-output":
			fmt.Fprint(w, e.Output)
		case e.Action == "output" || e.Test != "":
			packages[e.Package] = append(packages[e.Package], e)
		case e.Action == "pass" || e.Action == "skip" || e.Action == "fail":
			showPackage(w, packages[e.Package], e.Action == "fail")
			delete(packages, e.Package)
		}
	})
}

func showPackage(w io.Writer, events []event, failed bool) {
	good := map[string]bool{}
	for _, e := range events {
		good[e.Test] = good[e.Test] || e.Action == "pass" || e.Action == "skip"
	}
	for _, e := range events {
		if e.Action == "output" && (failed && !good[e.Test] || e.Test == "" && summary(e.Output)) {
			fmt.Fprint(w, e.Output)
		}
	}
}

// summary reports whether line is the one that go test prints for a package that has not failed. With -cover, the line of a
// package without tests begins with a tab.
func summary(line string) bool {
	return strings.HasPrefix(line, "ok  ") || strings.HasPrefix(line, "?   ") || strings.HasPrefix(line, "\t")
}

// judge checks that each test passed in one run at least and failed in none.
func judge(files []string, w io.Writer) error {
	passed, failed, skipped := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = scan(f, func(e event) {
			name := strings.TrimSpace(e.Package + " " + e.Test)
			switch {
			case e.Action == "fail":
				failed[name] = true
			case e.Action == "pass" && e.Test != "":
				passed[name] = true
			case e.Action == "skip" && e.Test != "": // of a package: it has no tests
				skipped[name] = true
			}
		})
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	// A package fails with its tests. It counts itself only if it did not build, or ended before its tests.
	maps.DeleteFunc(failed, func(name string, _ bool) bool {
		if strings.Contains(name, " ") {
			return false
		}
		for other := range failed {
			if strings.HasPrefix(other, name+" ") {
				return true
			}
		}
		return false
	})
	never := 0
	for _, name := range slices.Sorted(maps.Keys(skipped)) {
		if !passed[name] && !failed[name] {
			never++
			fmt.Fprintln(w, "skipped in every run:", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		fmt.Fprintln(w, "failed:", name)
		delete(passed, name)
	}
	fmt.Fprintf(w, "%d passed, %d failed\n", len(passed), len(failed))
	switch {
	case len(failed) > 0:
		return errors.New("tests failed")
	case never > 0:
		return fmt.Errorf("%d tests were skipped that should have run", never)
	case len(passed) == 0:
		return errors.New("no test ran")
	}
	return nil
}

func scan(r io.Reader, each func(event)) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil {
				each(e)
			} else { // not go test's: a tool that it runs wrote to the same place
				os.Stderr.Write(line)
			}
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}
