package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const modulePath = "github.com/resilienthttp/resilienthttp/"

// structure prints how large the inside of the root and of internal/ is: what calls pass, the largest structs, comments
// inside functions, and lines of code by folder. With the argument "functions" it also prints the names of the functions
// that calls pass. It judges nothing.
func structure(args []string) error {
	texts, err := contents(":(glob)*.go", "internal/*.go", ":!*_test.go")
	if err != nil {
		return err
	}
	var files []*source
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		f, err := parseSource(name, []byte(texts[name]))
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	printStructs(files)
	printFolders(files)
	return printPasses(files, slices.Contains(args, "functions"))
}

// source is a file.
type source struct {
	name      string
	functions []function
	structs   []structType
	code      int // lines with code
	inside    int // lines of code inside functions
	comments  int // comments inside functions, in lines
}

type function struct {
	name        string
	first, last int // lines
}

type structType struct {
	name             string
	fields, booleans int // an embedded part is one field
}

func parseSource(name string, text []byte) (*source, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	line := func(at token.Pos) int { return files.Position(at).Line }
	s := &source{name: name}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			s.functions = append(s.functions, function{f.Name.Name, line(f.Pos()), line(f.End())})
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if t, ok := spec.Type.(*ast.StructType); ok {
			s.structs = append(s.structs, measureStruct(spec.Name.Name, t))
		}
		return true
	})
	for n := range codeLines(text) {
		s.code++
		if s.inFunction(n) {
			s.inside++
		}
	}
	for _, group := range parsed.Comments {
		for _, c := range group.List {
			if s.inFunction(line(c.Pos())) && !strings.HasPrefix(c.Text, "//nolint") {
				s.comments++
			}
		}
	}
	return s, nil
}

func measureStruct(name string, t *ast.StructType) structType {
	s := structType{name: name}
	for _, f := range t.Fields.List {
		n := max(len(f.Names), 1)
		s.fields += n
		if id, ok := f.Type.(*ast.Ident); ok && id.Name == "bool" {
			s.booleans += n
		}
	}
	return s
}

// codeLines returns the numbers of the lines that have a token.
func codeLines(text []byte) map[int]bool {
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	lines := map[int]bool{}
	for {
		at, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}
		for i := range strings.Count(literal, "\n") + 1 { // a raw string has several
			lines[file.Line(at)+i] = true
		}
	}
}

func (s *source) inFunction(line int) bool {
	return slices.ContainsFunc(s.functions, func(f function) bool { return f.first < line && line <= f.last })
}

func printStructs(files []*source) {
	var all []structType
	for _, f := range files {
		for _, s := range f.structs {
			s.name = strings.TrimPrefix(filepath.ToSlash(filepath.Dir(f.name))+"."+s.name, ".")
			all = append(all, s)
		}
	}
	byFields := func(a, b structType) int { return cmp.Or(b.fields-a.fields, strings.Compare(a.name, b.name)) }
	slices.SortFunc(all, byFields)
	fmt.Printf("%-40s %6s %8s\n", "largest structs", "fields", "booleans")
	for i, s := range all {
		if i < 10 || s.booleans > 5 {
			fmt.Printf("%-40s %6d %8d\n", s.name, s.fields, s.booleans)
		}
	}
}

func printFolders(files []*source) {
	var folders []string
	sums := map[string]*source{}
	for _, f := range files {
		folder := filepath.ToSlash(filepath.Dir(f.name))
		for _, to := range []string{folder, "all"} {
			if sums[to] == nil {
				sums[to] = &source{}
				folders = append(folders, to)
			}
			sums[to].code += f.code
			sums[to].inside += f.inside
			sums[to].comments += f.comments
		}
	}
	slices.SortFunc(folders, func(a, b string) int { return sums[b].code - sums[a].code })
	fmt.Printf("\n%-40s %6s %s\n", "folder", "code", "lines of comment per 100 lines inside functions")
	for _, name := range folders {
		f := sums[name]
		fmt.Printf("%-40s %6d %8.1f\n", name, f.code, 100*float64(f.comments)/float64(max(f.inside, 1)))
	}
}

// printPasses prints how many functions and files the calls of package passes go through, by the counters of coverage.
func printPasses(files []*source, names bool) error {
	dir, err := os.MkdirTemp("", "structure")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err = output(".", []string{"GOCOVERDIR=" + dir}, "go", "run", "-cover", "-covermode=atomic", "-coverpkg=.,./internal/...,./.ci/check/passes", "./.ci/check/passes", dir); err != nil {
		return err
	}
	fmt.Printf("\n%-40s %9s %9s\n", "a call passes", "functions", "files")
	counters, err := filepath.Glob(filepath.Join(dir, "*.*", ""))
	if err != nil {
		return err
	}
	for _, of := range counters {
		if info, err := os.Stat(of); err != nil || !info.IsDir() {
			continue // those of the whole program
		}
		profile := filepath.Join(of, "profile")
		if _, err := output(".", nil, "go", "tool", "covdata", "textfmt", "-i="+of, "-o="+profile); err != nil {
			return err
		}
		text, err := os.ReadFile(profile)
		if err != nil {
			return err
		}
		functions, err := passed(files, string(text))
		if err != nil {
			return err
		}
		name, part, _ := strings.Cut(filepath.Base(of), ".")
		in := map[string]bool{}
		for _, f := range functions {
			file, _, _ := strings.Cut(f, ":")
			in[file] = true
		}
		fmt.Printf("%-40s %9d %9d\n", name+" "+map[string]string{"before": "before Base", "whole": "whole"}[part], len(functions), len(in))
		if names {
			fmt.Println("  " + strings.Join(functions, "\n  "))
		}
	}
	return nil
}

// passed returns the functions with a counter above zero in a profile, as file:line name, in order.
func passed(files []*source, profile string) ([]string, error) {
	var functions []string
	for _, l := range lines(profile)[1:] {
		file, rest, _ := strings.Cut(l, ":")
		f := slices.IndexFunc(files, func(s *source) bool { return modulePath+s.name == file })
		if f < 0 || strings.HasSuffix(l, " 0") {
			continue
		}
		begin, _, _ := strings.Cut(rest, ".")
		line, err := strconv.Atoi(begin)
		if err != nil {
			return nil, errors.New("a profile with the line " + l)
		}
		for _, fn := range files[f].functions {
			if fn.first <= line && line <= fn.last {
				functions = append(functions, fmt.Sprintf("%s:%d %s", files[f].name, fn.first, fn.name))
			}
		}
	}
	slices.Sort(functions)
	return slices.Compact(functions), nil
}
