// Check has the checks of this repository beside its tests. Most steps of `.ci/run` are commands of it.
//
//	go run ./.ci/check              lists the commands
//	go run ./.ci/check invariants   runs one
//
// It runs in the root of the checkout.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// command is one check. run gets the arguments after its name.
type command struct {
	name, does string
	run        func(args []string) error
}

func commands() []command {
	return []command{
		{"format", "gofmt -s, and no file that is not text", format},
		{"modules", "go.mod, go.sum, go.work and go.work.sum are complete and minimal", modules},
		{"apart", "print the modules that are not in go.work", printApart},
		{"invariants", "each promise of docs/maintainers/invariants.md has a test, and each number in a test is a promise", invariants},
		{"words", "no word to avoid", words},
		{"documents", "the pages: words, links, code, and a page for each exported name", documents},
		{"names", "the exported names, and a warning if they grow", names},
		{"places", "what is missing of a dialect, a reason to stop, a gate, a metric or a store", places},
		{"structure", "what a reader of the client has to hold in the head: decisions, and what calls pass", structure},
		{"corpora", "each fuzz target has inputs under version control", corpora},
		{"fuzz", "run each fuzz target for FUZZTIME, a minute", fuzz},
		{"publish", "install each module from an invented release, and run README's program", publish},
		{"report", "FILE: store the events of go test -json in FILE, and print them as go test does", report},
		{"count", "FILE…: combine several runs of the same tests", count},
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
