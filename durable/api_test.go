package durable_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExportedNames limits the number of names. Names that only a store needs belong to package driver.
func TestExportedNames(t *testing.T) {
	const limit = 45 // of each
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var typesAndFunctions, constantsAndErrors []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.FileExports(parsed)
		for _, declared := range parsed.Decls {
			switch d := declared.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					typesAndFunctions = append(typesAndFunctions, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						typesAndFunctions = append(typesAndFunctions, s.Name.Name)
					case *ast.ValueSpec:
						for _, name := range s.Names {
							constantsAndErrors = append(constantsAndErrors, name.Name)
						}
					}
				}
			}
		}
	}
	assert.NotEmpty(t, typesAndFunctions)
	assert.LessOrEqual(t, len(typesAndFunctions), limit, "%s", typesAndFunctions)
	assert.LessOrEqual(t, len(constantsAndErrors), limit, "%s", constantsAndErrors)
	t.Logf("%d types and functions, %d constants and errors", len(typesAndFunctions), len(constantsAndErrors))
}
