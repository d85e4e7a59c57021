package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
)

// fuzzTarget is a function and the directory of its package.
type fuzzTarget struct{ dir, name string }

func fuzzTargets() (all []fuzzTarget, err error) {
	tests, err := contents("*_test.go")
	if err != nil {
		return nil, err
	}
	declared := regexp.MustCompile(`(?m)^func (Fuzz\w+)`)
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		for _, found := range declared.FindAllStringSubmatch(tests[name], -1) {
			all = append(all, fuzzTarget{path.Dir(name), found[1]})
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there are no fuzz targets")
	}
	return all, nil
}

// corpora checks that each fuzz target has inputs under version control. `go test` runs them as ordinary tests.
func corpora([]string) error {
	targets, err := fuzzTargets()
	if err != nil {
		return err
	}
	var missing []string
	for _, t := range targets {
		corpus := path.Join(t.dir, "testdata/fuzz", t.name)
		inputs, err := tracked(corpus)
		if err != nil {
			return err
		}
		if len(inputs) == 0 {
			missing = append(missing, corpus)
		}
	}
	fmt.Printf("%d fuzz targets\n", len(targets))
	return problems("fuzz targets without a corpus", missing)
}

// fuzz runs each target for FUZZTIME, a minute by default. A target that fails does not stop the others.
func fuzz([]string) error {
	targets, err := fuzzTargets()
	if err != nil {
		return err
	}
	length := cmp.Or(os.Getenv("FUZZTIME"), "1m")
	var failed []string
	for _, t := range targets {
		fmt.Println(t.name, "in", t.dir)
		if err := runIn(t.dir, nil, "go", "test", "-run=^$", "-fuzz=^"+t.name+"$", "-fuzztime="+length, "."); err != nil {
			failed = append(failed, t.name+" in "+t.dir)
		}
	}
	return problems("failed", failed)
}
