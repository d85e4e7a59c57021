package resilienthttp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/field"
)

// §4.33: the engines have the same values, because they are converted.
func TestConstants_ofEngines(t *testing.T) {
	for engine, public := range map[circuit.State]BreakerState{circuit.Closed: StateClosed, circuit.HalfOpen: StateHalfOpen, circuit.Open: StateOpen} {
		require.Equal(t, public, BreakerState(engine))
	}
	for header, public := range map[int8]Priority{field.Batch: PriorityBatch, field.Default: PriorityDefault, field.Critical: PriorityCritical} {
		require.Equal(t, public, Priority(header))
	}
}

// §4.33: a reader of go doc sees the fields of a type and the value of a constant. Those of internal packages are not shown.
func TestNames_showTheirFields(t *testing.T) {
	for _, dir := range publicFolders(t) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, shown := range hiddenIn(file) {
				t.Errorf("%s: %s is declared by an internal package", name, shown)
			}
		}
	}
}

// publicFolders returns the folders of the packages that users import, those of the stores too.
func publicFolders(t *testing.T) (folders []string) {
	programs := []string{"internal", "benchmarks", "crashtest", "examples", "tools", "testdata"}
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		isHidden := strings.HasPrefix(entry.Name(), ".") && path != "."
		if isHidden || slices.Contains(programs, entry.Name()) {
			return filepath.SkipDir
		}
		folders = append(folders, path)
		return nil
	}))
	require.Subset(t, folders, []string{".", "durable", "durable/pgstore", "idempotency", "idempotency/redisstore"})
	return folders
}

// hiddenIn returns the exported types, constants and variables of a file that an internal package declares.
func hiddenIn(file *ast.File) (hidden []string) {
	internal := map[string]bool{}
	for _, imported := range file.Imports {
		path := strings.Trim(imported.Path.Value, `"`)
		if strings.Contains(path, "/internal/") {
			internal[path[strings.LastIndex(path, "/")+1:]] = true
		}
	}
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() && names(spec.Type, internal) {
					hidden = append(hidden, spec.Name.Name)
				}
			case *ast.ValueSpec:
				if general.Tok == token.VAR && isShared(spec) {
					continue
				}
				if spec.Names[0].IsExported() && len(spec.Values) > 0 && names(spec.Values[0], internal) {
					hidden = append(hidden, spec.Names[0].Name)
				}
			}
		}
	}
	return hidden
}

// isShared reports whether a variable is an error that the stores of two packages share. It has no fields, so its comment says all.
func isShared(spec *ast.ValueSpec) bool {
	kits := map[string]bool{"pgkit": true, "sqlitekit": true}
	return len(spec.Values) > 0 && names(spec.Values[0], kits)
}

// names reports whether the outermost expression is of an internal package, as in driver.Intent or driver.New("a").
func names(expr ast.Expr, internal map[string]bool) bool {
	switch expr := expr.(type) {
	case *ast.SelectorExpr:
		from, ok := expr.X.(*ast.Ident)
		return ok && internal[from.Name]
	case *ast.CallExpr:
		if len(expr.Args) == 1 && names(expr.Args[0], internal) {
			return true
		}
		return names(expr.Fun, internal)
	}
	return false
}
