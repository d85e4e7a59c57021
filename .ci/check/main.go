// Check is what must hold in this repository beside the tests of its code: a step of `.ci/run` is one of its commands.
//
//	go run ./.ci/check              lists them
//	go run ./.ci/check invariants   runs one
//
// It works on the checkout that it is run in, from the root, and fails with what is wrong and nothing else to read.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// command is one check. args are what stands behind its name.
type command struct {
	name, does string
	run        func(args []string) error
}

func commands() []command {
	return []command{
		{"needs", "find the programs that tests start, or install them", needs},
		{"format", "gofmt -s, and no file that is not text", format},
		{"modules", "go.mod, go.sum, go.work and go.work.sum say what is needed, and no more", modules},
		{"apart", "print the modules that are not in go.work", printApart},
		{"invariants", "each numbered law of the design is named by a test", invariants},
		{"words", "no more of the words to avoid than before", words},
		{"documents", "the pages: words, sentences, links, code, and a page for each exported name", documents},
		{"corpora", "each fuzz target has inputs under version control", corpora},
		{"fuzz", "run each fuzz target for FUZZTIME, a minute", fuzz},
		{"coverage", "PROFILE: enough of the root package is covered", coverage},
		{"readme", "run | test: print that command of README.md", readmeCommand},
		{"publish", "install every module from a made-up release, and run README's Go there", publish},
		{"report", "FILE: keep the events of go test -json in FILE, and print them as go test would", report},
		{"count", "FILE…: take several runs of the same tests together", count},
	}
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 0 {
		for _, c := range commands() {
			if c.name == args[0] {
				return c.run(args[1:])
			}
		}
	}
	var usage strings.Builder
	usage.WriteString("usage: check COMMAND\n")
	for _, c := range commands() {
		fmt.Fprintf(&usage, "  %-12s%s\n", c.name, c.does)
	}
	return errors.New(usage.String())
}
