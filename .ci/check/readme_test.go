package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func TestCommandOf(t *testing.T) {
	const both = "```sh\n$ go run ./examples/a   # see\n\ngo test work # all\n```\n"
	for _, row := range []struct{ name, document, run, test string }{
		{"both", "# x\n" + both, "go run ./examples/a", "go test work"},
		{"one alone does not count", "```sh\ngo run ./b\n```\n" + both, "go run ./examples/a", "go test work"},
		{"nor with a third", "```sh\ngo run ./b\ngo test .\nls\n```\n", "", ""},
		{"none", "go run ./b\ngo test .\n", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			run, _ := commandOf(row.document, "run")
			test, _ := commandOf(row.document, "test")
			if run != row.run || test != row.test {
				t.Errorf("%q, %q", run, test)
			}
		})
	}
}

func TestFrameAll(t *testing.T) {
	const readme = "```go\nx := 1\nprint(x)\n```\n\n```sh\nls\n```\n"
	frame := func(first string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("package one\n\nfunc f() {\n\t//README " + first + "\n}\n")}
	}
	for _, row := range []struct {
		name   string
		frames fstest.MapFS
		says   string
	}{
		{"framed", fstest.MapFS{"one.go.txt": frame("x := 1")}, ""},
		{"no frame", fstest.MapFS{}, `README.md:2: no frame for the block that begins "x := 1"`},
		{"no block", fstest.MapFS{"one.go.txt": frame("x := 1"), "two.go.txt": frame("y := 2")}, `two.go.txt: README.md has no block that begins "y := 2"`},
		{"no place", fstest.MapFS{"one.go.txt": frame("x := 1"), "two.go.txt": {}}, "two.go.txt has no line //README"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			err := frameAll(readme, row.frames, dir)
			if row.says != "" {
				if err == nil || !strings.Contains(err.Error(), row.says) {
					t.Errorf("%v, want %s", err, row.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(dir, "one", "one_test.go"))
			if want := "package one\n\nfunc f() {\n\tx := 1\nprint(x)\n\n}\n"; err != nil || string(got) != want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
