package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// printCalls prints how many functions the calls of .ci/calls pass before Base, between two attempts and after Base, and how many
// decisions these functions have, whether the call takes them or not.
func printCalls(packages map[string]pkg) error {
	counters, err := os.MkdirTemp("", "calls")
	if err != nil {
		return err
	}
	defer os.RemoveAll(counters)
	if err := countCalls(counters, packages); err != nil {
		return err
	}
	calls, err := filepath.Glob(filepath.Join(counters, "[0-9]*"))
	if err != nil {
		return err
	}
	fmt.Println("functions that a call passes, and their decisions")
	var get []function // of the first call, with which the others are compared
	for i, call := range calls {
		parts, err := partsOf(call, packages)
		if err != nil {
			return err
		}
		whole := parts[len(parts)-1].passed
		if i == 0 {
			get = whole
		} else {
			more := slices.DeleteFunc(slices.Clone(whole), func(f function) bool { return slices.Contains(get, f) })
			parts = append(parts, part{"of these not in a GET", more})
		}
		var text []string
		for _, p := range parts {
			text = append(text, fmt.Sprintf("%s %d, %d", p.name, len(p.passed), decisionsOf(p.passed)))
		}
		fmt.Printf("  %s: %s\n", numbered.ReplaceAllString(filepath.Base(call), ""), strings.Join(text, "; "))
	}
	return nil
}

// numbered is what keeps the folders in order.
var numbered = regexp.MustCompile(`^\d+ `)

// countCalls builds .ci/calls with counters in all packages, and runs it.
func countCalls(folder string, packages map[string]pkg) error {
	counted := []string{home + "/.ci/calls"} // without it, the program has no counters at all
	for name := range packages {
		counted = append(counted, path.Join(home, name))
	}
	program := filepath.Join(folder, "calls")
	build := []string{"build", "-buildvcs=false", "-cover", "-covermode=atomic", "-coverpkg=" + strings.Join(counted, ","), "-o", program, "./.ci/calls"}
	if _, err := output(".", nil, "go", build...); err != nil {
		return err
	}
	_, err := output(".", []string{"GOCOVERDIR=" + folder}, program, folder)
	return err
}

// part is a part of a call, and the functions that it passes. A function that asks Base is a part of what is before it, and also
// of what is after it, if it does not end at once.
type part struct {
	name   string
	passed []function
}

// partsOf reads the counters of a call. The last part is the whole call.
func partsOf(call string, packages map[string]pkg) (parts []part, err error) {
	folders, err := filepath.Glob(filepath.Join(call, "*"))
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		passed, err := passedIn(folder, packages)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{numbered.ReplaceAllString(filepath.Base(folder), ""), passed})
	}
	all, err := passedIn(strings.Join(folders, ","), packages)
	return append(parts, part{"in all", all}), err
}

// passedIn reads the counters of one or several folders, separated by commas.
func passedIn(folders string, packages map[string]pkg) ([]function, error) {
	profile, err := output(".", nil, "go", "tool", "covdata", "textfmt", "-i="+folders, "-o=/dev/stdout")
	if err != nil {
		return nil, err
	}
	return passedOf(profile, packages)
}

// countedBlock is a line of a profile: file:line.column,line.column statements count.
var countedBlock = regexp.MustCompile(`^` + regexp.QuoteMeta(home) + `/(\S+):(\d+)\.\d+,\S+ \d+ (\d+)$`)

// passedOf returns the functions with a block that was executed.
func passedOf(profile string, packages map[string]pkg) ([]function, error) {
	passed := map[place]function{}
	for _, line := range lines(profile)[1:] { // the first one is the mode
		found := countedBlock.FindStringSubmatch(line)
		if found == nil {
			return nil, fmt.Errorf("the profile has the line %q", line)
		}
		if found[3] == "0" {
			continue
		}
		at, err := strconv.Atoi(found[2])
		if err != nil {
			return nil, err
		}
		for _, f := range packages[path.Dir(found[1])].functions {
			if f.file == found[1] && f.line <= at && at <= f.last {
				passed[f.place] = f
			}
		}
	}
	if len(passed) == 0 {
		return nil, errors.New("no function was executed")
	}
	return slices.Collect(maps.Values(passed)), nil
}
