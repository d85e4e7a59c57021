// Typecheck type-checks packages and their tests for other systems:
//
//	typecheck linux/386,windows/amd64 ./...
//
// It finds what the compiler would reject, such as a constant above 32 bits, or a file that another system leaves out. It is
// many times faster: it compiles nothing, and skips the function bodies of dependencies.
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: typecheck GOOS/GOARCH,… package…")
		os.Exit(2)
	}
	code, files := 0, parsed{fset: token.NewFileSet(), files: map[string]func() (*ast.File, error){}}
	for system := range strings.SplitSeq(os.Args[1], ",") {
		if err := files.check(system, os.Args[2:]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", system, err)
			code = 1
		}
	}
	os.Exit(code)
}

// parsed has the files of all systems: most belong to several.
type parsed struct {
	fset  *token.FileSet
	mu    sync.Mutex
	files map[string]func() (*ast.File, error) // by name
}

func (p *parsed) check(system string, patterns []string) error {
	goos, goarch, ok := strings.Cut(system, "/")
	if !ok {
		return errors.New("not a GOOS/GOARCH")
	}
	loaded, err := packages.Load(&packages.Config{
		// Without NeedTypesInfo the bodies of dependencies' functions are skipped.
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes,
		Tests: true,
		Env:   append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
		Fset:  p.fset,
		ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
			p.mu.Lock()
			parse := p.files[name]
			if parse == nil {
				parse = sync.OnceValues(func() (*ast.File, error) {
					return parser.ParseFile(fset, name, src, parser.AllErrors|parser.SkipObjectResolution)
				})
				p.files[name] = parse
			}
			p.mu.Unlock()
			return parse()
		},
	}, patterns...)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d packages, the variants for tests among them\n", system, len(loaded))
	if n := packages.PrintErrors(loaded); n > 0 {
		return fmt.Errorf("%d errors", n)
	}
	if len(loaded) == 0 {
		return errors.New("no packages")
	}
	return nil
}
