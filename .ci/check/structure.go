package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// bars are what structure fails for. Nothing bounds lines, words, names or the length of a function: each of those bounds was once
// met by packing.
var bars = struct {
	complexity       int      // of a function of the root
	structs          []string // of the root: what a call keeps
	fields, booleans int      // of each of them
}{15, []string{"call", "attempt", "retryState"}, 20, 4}

// structure prints what a reader of the client has to hold in the head: the decisions of each package, and the functions that
// usual calls pass. It fails only for the bars.
func structure([]string) error {
	packages, err := measureClient()
	if err != nil {
		return err
	}
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		packages[folder].print(folder)
	}
	if err := printCalls(packages); err != nil {
		return err
	}
	return problems("structure", missed(packages["."]))
}

// measureClient counts the packages of the client, by folder.
func measureClient() (map[string]pkg, error) {
	folders, err := clientFolders()
	if err != nil {
		return nil, err
	}
	packages := map[string]pkg{}
	for _, folder := range folders {
		files, err := contents(":(glob)" + path.Join(folder, "*.go"))
		if err != nil {
			return nil, err
		}
		p, err := measure(files)
		if err != nil {
			return nil, err
		}
		if len(p.functions) == 0 {
			return nil, fmt.Errorf("no function was found in %s", folder)
		}
		packages[folder] = p
	}
	return packages, nil
}

// clientFolders are the root and the internal packages that it imports. The rest of internal serves tests and stores.
func clientFolders() ([]string, error) {
	list, err := output(".", nil, "go", "list", "-deps", ".")
	if err != nil {
		return nil, err
	}
	folders := []string{"."}
	for _, name := range lines(list) {
		if folder, ok := strings.CutPrefix(name, home+"/"); ok && strings.HasPrefix(folder, "internal/") {
			folders = append(folders, folder)
		}
	}
	return folders, nil
}

// missed returns the functions and structs of the root that are above the bars.
func missed(root pkg) (above []string) {
	for _, f := range root.functions {
		if f.complexity() > bars.complexity {
			above = append(above, fmt.Sprintf("%s: cyclomatic complexity %d, at most %d", f, f.complexity(), bars.complexity))
		}
	}
	for _, s := range root.structs {
		if !slices.Contains(bars.structs, s.name) {
			continue
		}
		if s.fields > bars.fields {
			above = append(above, fmt.Sprintf("%s: %d fields, at most %d", s, s.fields, bars.fields))
		}
		if s.booleans > bars.booleans {
			above = append(above, fmt.Sprintf("%s: %d booleans, at most %d", s, s.booleans, bars.booleans))
		}
	}
	return above
}

// pkg is what is counted of a package, without its tests.
type pkg struct {
	code      int // lines that are neither empty nor comments
	body      int // lines of functions
	comments  int // whole lines of comments in functions
	functions []function
	structs   []structType
}

type place struct {
	file string
	line int
	name string
}

func (p place) String() string { return fmt.Sprintf("%s:%d %s", p.file, p.line, p.name) }

type function struct {
	place
	last      int // line
	decisions int
}

// complexity is the cyclomatic complexity, as gocyclo counts it.
func (f function) complexity() int { return f.decisions + 1 }

type structType struct {
	place
	fields, booleans int
}

func (p pkg) decisions() int { return decisionsOf(p.functions) }

func decisionsOf(functions []function) (sum int) {
	for _, f := range functions {
		sum += f.decisions
	}
	return sum
}

// print prints the package, and what is worst in it.
func (p pkg) print(folder string) {
	fmt.Printf("%s: %d code lines, %d functions, %d decisions, %.1f comment lines per 100 lines of functions\n",
		folder, p.code, len(p.functions), p.decisions(), 100*float64(p.comments)/float64(max(p.body, 1)))
	slices.SortStableFunc(p.functions, func(a, b function) int { return cmp.Compare(b.decisions, a.decisions) })
	for _, f := range p.functions[:min(5, len(p.functions))] {
		fmt.Printf("  cyclomatic %2d  %s\n", f.complexity(), f)
	}
	slices.SortStableFunc(p.structs, func(a, b structType) int { return cmp.Compare(b.fields, a.fields) })
	for _, s := range p.structs[:min(3, len(p.structs))] {
		fmt.Printf("  fields %2d, booleans %d  %s\n", s.fields, s.booleans, s)
	}
}

// measure counts the files of a package, by name. Tests are left out.
func measure(files map[string]string) (p pkg, err error) {
	positions := token.NewFileSet()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(positions, name, files[name], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return pkg{}, err
		}
		p.code += codeLines(files[name])
		for _, declared := range file.Decls {
			switch d := declared.(type) {
			case *ast.FuncDecl:
				if d.Body != nil {
					p.addFunction(positions, file, d, strings.Split(files[name], "\n"))
				}
			case *ast.GenDecl:
				p.addStructs(positions, d)
			}
		}
	}
	return p, nil
}

// addFunction counts a function. Function literals belong to the function that they are in.
func (p *pkg) addFunction(positions *token.FileSet, file *ast.File, d *ast.FuncDecl, text []string) {
	at := positions.Position(d.Pos())
	f := function{place: place{at.Filename, at.Line, receiver(d) + d.Name.Name}, last: positions.Position(d.End()).Line}
	ast.Inspect(d.Body, func(node ast.Node) bool {
		f.decisions += decisionsIn(node)
		return true
	})
	p.functions = append(p.functions, f)
	p.body += f.last - f.line + 1
	for _, group := range file.Comments {
		if group.Pos() < d.Body.Pos() || group.End() > d.Body.End() {
			continue
		}
		for _, c := range group.List {
			if strings.HasPrefix(strings.TrimSpace(text[positions.Position(c.Pos()).Line-1]), "//") {
				p.comments++
			}
		}
	}
}

// decisionsIn returns the decisions of a node, without those of the nodes in it: a branch, a loop, && and ||. Each expression of a
// case is one, because each is a condition. A default is none.
func decisionsIn(node ast.Node) int {
	switch n := node.(type) {
	case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
		return 1
	case *ast.CaseClause:
		return len(n.List)
	case *ast.CommClause:
		if n.Comm != nil {
			return 1
		}
	case *ast.BinaryExpr:
		if n.Op == token.LAND || n.Op == token.LOR {
			return 1
		}
	}
	return 0
}

// receiver returns the type of a method's receiver and a dot, or nothing.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	name := ""
	ast.Inspect(d.Recv.List[0].Type, func(node ast.Node) bool {
		if id, ok := node.(*ast.Ident); ok && name == "" { // those that follow are type parameters
			name = id.Name + "."
		}
		return true
	})
	return name
}

// addStructs counts the fields of the struct types of a declaration. Embedded fields count, and atomic.Bool is a boolean.
func (p *pkg) addStructs(positions *token.FileSet, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		declared, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		fields, ok := declared.Type.(*ast.StructType)
		if !ok {
			continue
		}
		at := positions.Position(declared.Pos())
		s := structType{place: place{at.Filename, at.Line, declared.Name.Name}}
		for _, field := range fields.Fields.List {
			n := max(len(field.Names), 1)
			s.fields += n
			if isBoolean(field.Type) {
				s.booleans += n
			}
		}
		p.structs = append(p.structs, s)
	}
}

func isBoolean(t ast.Expr) bool {
	switch t := t.(type) {
	case *ast.Ident:
		return t.Name == "bool"
	case *ast.SelectorExpr:
		return t.Sel.Name == "Bool"
	}
	return false
}

// codeLines returns the number of lines that are neither empty nor comments.
func codeLines(text string) (n int) {
	inComment := false
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		begins := strings.HasPrefix(line, "/*")
		switch {
		case inComment || begins:
			inComment = !strings.Contains(line, "*/")
		case line != "" && !strings.HasPrefix(line, "//"):
			n++
		}
	}
	return n
}
