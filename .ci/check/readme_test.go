package main

import (
	"testing"
)

func TestCommandOf(t *testing.T) {
	const both = "```sh\n$ go run ./examples/a   # see\n\ngo test work # all\n```\n"
	for _, row := range []struct{ name, document, run, test string }{
		{"both: both", "# x\n" + both, "go run ./examples/a", "go test work"},
		{"one alone: ignored", "```sh\ngo run ./b\n```\n" + both, "go run ./examples/a", "go test work"},
		{"with a third command: ignored", "```sh\ngo run ./b\ngo test .\nls\n```\n", "", ""},
		{"no block: none", "go run ./b\ngo test .\n", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			run, _ := commandOf(row.document, "run")
			test, _ := commandOf(row.document, "test")
			if run != row.run || test != row.test {
				t.Errorf("got %q, %q; want %q, %q", run, test, row.run, row.test)
			}
		})
	}
}

func TestProgramOf(t *testing.T) {
	const program = "package main\n\nfunc main() {}\n"
	for _, row := range []struct{ name, document, want string }{
		{"a part and a program: the program", "```go\nx := 1\n```\n\n```go\n" + program + "```\n", program},
		{"parts alone: none", "```go\nx := 1\n```\n", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got, ok := programOf(row.document); got != row.want || ok != (row.want != "") {
				t.Errorf("got %q, %v; want %q", got, ok, row.want)
			}
		})
	}
}
