// Constants shows which test notices each numeric constant of a package: it halves and doubles them one at a time, and prints the
// first test of the package that fails.
//
//	go run ./benchmarks/cmd/constants                  # the root and each folder of internal: hours
//	go run ./benchmarks/cmd/constants internal/quota
//
// Run it in the root of the repository.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// constant is one number of the source.
type constant struct {
	file, name, text string
	from, to         int // its place in the file
}

func main() {
	folders := os.Args[1:]
	if len(folders) == 0 {
		folders, _ = filepath.Glob("internal/*") // the pattern is right
		folders = append(folders, ".")
	}
	if err := run(folders); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(words ...any) { _, _ = fmt.Fprintln(os.Stdout, words...) }

func run(folders []string) error {
	dir, err := os.MkdirTemp("", "constants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	say("| constant | value | half | double |\n|---|---|---|---|")
	for _, folder := range folders {
		list, err := constants(folder)
		if err != nil {
			return err
		}
		for _, c := range list {
			say("| `"+c.name+"` of", folder, "| `"+c.text+"` |", c.change(dir, "/ 2"), "|", c.change(dir, "* 2"), "|")
		}
	}
	return nil
}

// constants returns the constants of a folder that contain a number, and neither a text nor iota.
func constants(folder string) (list []constant, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file) //nolint:gosec // a file of the repository
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST {
				return true
			}
			for _, s := range decl.Specs {
				spec, ok := s.(*ast.ValueSpec)
				for i := 0; ok && i < len(spec.Values); i++ {
					if from, to := set.Position(spec.Values[i].Pos()).Offset, set.Position(spec.Values[i].End()).Offset; isNumber(spec.Values[i]) {
						list = append(list, constant{file, spec.Names[i].Name, string(text[from:to]), from, to})
					}
				}
			}
			return false
		})
	}
	return list, err
}

func isNumber(value ast.Expr) bool {
	number, other := false, false
	ast.Inspect(value, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			isNumber := n.Kind == token.INT || n.Kind == token.FLOAT
			number, other = number || isNumber, other || !isNumber
		case *ast.Ident:
			other = other || n.Name == "iota"
			number = number || slices.Contains([]string{"Millisecond", "Second", "Minute", "Hour"}, n.Name) // time.Second
		}
		return true
	})
	return number && !other
}

// change says which test fails first if the constant is changed.
func (c constant) change(dir, operation string) string {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return err.Error()
	}
	changed, overlay := filepath.Join(dir, filepath.Base(c.file)), filepath.Join(dir, "overlay.json")
	text = slices.Concat(text[:c.from], []byte("("+c.text+") "+operation), text[c.to:])
	path, err := filepath.Abs(c.file)
	if err != nil {
		return err.Error()
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}}) // go help build
	if err != nil {
		return err.Error()
	}
	if err := errors.Join(os.WriteFile(changed, text, 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil { //nolint:gosec // in a temporary directory
		return err.Error()
	}
	return failing(overlay, filepath.Dir(c.file))
}

// failing returns the first test of a folder that fails with the overlay, or none.
func failing(overlay, folder string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a changed constant may make a test endless
	defer cancel()
	output, err := exec.CommandContext(ctx, "go", "test", "-short", "-failfast", "-overlay", overlay, "./"+folder).CombinedOutput() //nolint:gosec // our own tests
	if err == nil {
		return "none"
	}
	if found := regexp.MustCompile(`--- FAIL: (\w+)`).FindSubmatch(output); found != nil {
		return string(found[1])
	}
	if bytes.Contains(output, []byte("[build failed]")) {
		return "does not build"
	}
	return "the tests end: " + err.Error()
}
