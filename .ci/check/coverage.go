package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// leastCoverage is that of the root package by its own tests, in percent.
const leastCoverage = 92

// coverage reads a profile of one package.
func coverage(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: check coverage PROFILE")
	}
	profile, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	percent, missed, err := covered(string(profile))
	if err != nil {
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(missed)) {
		fmt.Printf("%5d statements missed in %s\n", missed[file], file)
	}
	fmt.Printf("%.1f %%, at least %d %%\n", percent, leastCoverage)
	if percent < leastCoverage {
		return errors.New("too little of the root package is covered by its tests")
	}
	return nil
}

// covered reads the lines of a profile, "file:from,to statements count", and tells how many statements of each file were missed.
func covered(profile string) (percent float64, missed map[string]int, err error) {
	all, hit := 0, 0
	missed = map[string]int{}
	for _, line := range lines(profile)[1:] {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return 0, nil, fmt.Errorf("not a line of a profile: %q", line)
		}
		statements, err1 := strconv.Atoi(fields[1])
		count, err2 := strconv.Atoi(fields[2])
		if err := errors.Join(err1, err2); err != nil {
			return 0, nil, err
		}
		all += statements
		if count > 0 {
			hit += statements
		} else {
			file, _, _ := strings.Cut(path.Base(fields[0]), ":")
			missed[file] += statements
		}
	}
	if all == 0 {
		return 0, nil, errors.New("the profile has no statements")
	}
	return 100 * float64(hit) / float64(all), missed, nil
}
