package idempotency_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExportedNames keeps the package small: what a service does not use belongs to
// package driver. Embedded fields are not counted.
func TestExportedNames(t *testing.T) {
	const limit = 99
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.FileExports(parsed)
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil || ast.IsExported(strings.TrimLeft(types.ExprString(n.Recv.List[0].Type), "*")) {
					names = append(names, n.Name.Name)
				}
				return false
			case *ast.TypeSpec:
				names = append(names, n.Name.Name)
			case *ast.ValueSpec:
				for _, name := range n.Names {
					names = append(names, name.Name)
				}
				return false
			case *ast.Field:
				for _, name := range n.Names {
					names = append(names, name.Name)
				}
				return false
			}
			return true
		})
	}
	assert.LessOrEqual(t, len(names), limit, "%v", names)
	assert.Greater(t, len(names), limit/2, "the count is wrong: %v", names)
}
