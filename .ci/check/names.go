package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
)

// usualNames are the numbers of exported names from which growth is reported: functions, types, methods, fields, constants and
// variables. Embedded fields are not counted. "" is all packages that users import.
func usualNames() map[string]int {
	return map[string]int{"": 1400, ".": 225, "durable": 475, "idempotency": 195}
}

// names prints the numbers of exported names, and warns if they are more than a twentieth above usualNames. It does not fail: a
// name may be worth it.
func names([]string) error {
	texts, err := contents("*.go", ":!*_test.go", ":!*internal/*", ":!.ci", ":!benchmarks", ":!crashtest", ":!examples", ":!tools")
	if err != nil {
		return err
	}
	counts := map[string]int{}
	for name, text := range texts {
		_, n, err := namesOf(text)
		if err != nil {
			return err
		}
		counts[path.Dir(name)] += n
		counts[""] += n
	}
	for _, dir := range slices.Sorted(maps.Keys(counts)) {
		fmt.Printf("%5d  %s\n", counts[dir], cmp.Or(dir, "all"))
		if usual, ok := usualNames()[dir]; ok && hasGrown(counts[dir], usual) {
			warnf("%s: %d exported names, and %d before", cmp.Or(dir, "all"), counts[dir], usual)
		}
	}
	return nil
}

// hasGrown reports whether a number is more than a twentieth above what it was.
func hasGrown(n, before int) bool { return 20*n > 21*before }

func warnf(format string, args ...any) { fmt.Printf("warning: "+format+"\n", args...) }

// namesOf returns the exported names at the top level of a file, and the number of all that it exports, with fields and methods.
func namesOf(text string) (top []string, n int, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, 0, err
	}
	ast.FileExports(file)
	ast.Inspect(file, func(node ast.Node) bool {
		switch d := node.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				top = append(top, d.Name.Name)
			}
			if d.Recv == nil || ast.IsExported(strings.TrimLeft(types.ExprString(d.Recv.List[0].Type), "*")) {
				n++
			}
			return false
		case *ast.TypeSpec:
			top = append(top, d.Name.Name)
			n++
		case *ast.ValueSpec:
			for _, name := range d.Names {
				top = append(top, name.Name)
			}
			n += len(d.Names)
			return false
		case *ast.FuncType: // parameters
			return false
		case *ast.Field:
			n += len(d.Names)
			return false
		}
		return true
	})
	return top, n, nil
}
