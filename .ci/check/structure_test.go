package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMeasure_decisions(t *testing.T) {
	for _, row := range []struct {
		name, body string
		want       int
	}{
		{"nothing: none", "", 0},
		{"if and else: one", "if a {\n} else {\n}", 1},
		{"else if: two", "if a {\n} else if b {\n}", 2},
		{"loops: one each", "for a {\n}\nfor range b {\n}", 2},
		{"operators: one each", "_ = a && b || !c", 2},
		{"each expression of a case, and no default", "switch {\ncase a, b:\ncase c:\ndefault:\n}", 3},
		{"each type of a case", "switch a.(type) {\ncase int, string:\n}", 2},
		{"each channel of a select, and no default", "select {\ncase <-a:\ncase b <- c:\ndefault:\n}", 2},
		{"a function literal: of the function that it is in", "f := func() {\nif a && b {\n}\n}\n_ = f", 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, err := measure(map[string]string{"a.go": "package a\n\nfunc f() {\n" + row.body + "\n}\n"})
			require.NoError(t, err)
			require.Equal(t, row.want, p.decisions())
			require.Equal(t, row.want+1, p.functions[0].complexity())
		})
	}
}

func TestMeasure(t *testing.T) {
	p, err := measure(map[string]string{
		"b/a.go": `// Package a is an example.
package a

/* Not
code. */

// s is not empty.
type s[T any] struct {
	sync.Mutex
	a, b   bool
	loaded atomic.Bool
	// c is a number.
	c int
}

type other interface{ f() }

func (x *s[T]) f(a bool) bool {
	// A reason.
	// It has two lines.
	return a // not a whole line
}

// g has no body.
func g()

// h is empty.
func h() {}
`,
		"b/a_test.go": "package a\n\nfunc TestA() { if true {} }\n",
	})
	require.NoError(t, err)
	require.Equal(t, pkg{
		code: 13, body: 6, comments: 2,
		functions: []function{{place{"b/a.go", 18, "s.f"}, 22, 0}, {place{"b/a.go", 28, "h"}, 28, 0}},
		structs:   []structType{{place{"b/a.go", 8, "s"}, 5, 3}},
	}, p)
}

func TestMeasure_badSource(t *testing.T) {
	_, err := measure(map[string]string{"a.go": "package"})
	require.Error(t, err)
}

func TestMissed(t *testing.T) {
	at := func(name string) place { return place{"a.go", 1, name} }
	for _, row := range []struct {
		name string
		root pkg
		want string
	}{
		{"all at the bars: none", pkg{
			functions: []function{{place: at("f"), decisions: bars.complexity - 1}},
			structs:   []structType{{at("call"), bars.fields, bars.booleans}},
		}, ""},
		{"a function above it", pkg{functions: []function{{place: at("f"), decisions: bars.complexity}}}, "a.go:1 f: cyclomatic complexity 16, at most 15"},
		{"fields above it", pkg{structs: []structType{{at("attempt"), bars.fields + 1, 0}}}, "a.go:1 attempt: 21 fields, at most 20"},
		{"booleans above it", pkg{structs: []structType{{at("retryState"), 5, bars.booleans + 1}}}, "a.go:1 retryState: 5 booleans, at most 4"},
		{"another struct, of any size: none", pkg{structs: []structType{{at("Transport"), 100, 100}}}, ""},
	} {
		t.Run(row.name, func(t *testing.T) { expect(t, missed(row.root), row.want) })
	}
}

func TestPassedOf(t *testing.T) {
	first, second := function{place{"hold.go", 3, "first"}, 5, 1}, function{place{"internal/hold/hold.go", 3, "second"}, 3, 0}
	packages := map[string]pkg{".": {functions: []function{first}}, "internal/hold": {functions: []function{second}}}
	for _, row := range []struct {
		name, profile string
		want          []function
	}{
		{"a block in its middle", "/hold.go:4.2,4.9 1 3", []function{first}},
		{"a block of a package below", "/internal/hold/hold.go:3.12,3.20 1 1", []function{second}},
		{"two blocks of a function: once", "/hold.go:3.2,4.9 1 1\n" + home + "/hold.go:5.2,5.3 1 1", []function{first}},
		{"not executed", "/hold.go:4.2,4.9 1 0", nil},
		{"behind the function", "/hold.go:6.2,6.9 1 1", nil},
		{"not a block", "/hold.go", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			passed, err := passedOf("mode: atomic\n"+home+row.profile+"\n", packages)
			require.Equal(t, row.want, passed)
			require.Equal(t, row.want == nil, err != nil, "an error if nothing is known: %v", err)
		})
	}
}

// The four calls are made, and their counters are read.
func TestCountCalls(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	packages, err := measureClient()
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, countCalls(folder, packages))
	for _, row := range []struct {
		call    string
		parts   []string
		retries bool
	}{
		{"1 GET", []string{"before Base", "after Base", "in all"}, false},
		{"2 POST with a key and a quota", []string{"before Base", "after Base", "in all"}, false},
		{"3 503 then 200", []string{"before Base", "between", "after Base", "in all"}, true},
		{"4 429 with Retry-After then 200", []string{"before Base", "between", "after Base", "in all"}, true},
	} {
		t.Run(row.call, func(t *testing.T) {
			parts, err := partsOf(filepath.Join(folder, row.call), packages)
			require.NoError(t, err)
			var names []string
			for _, p := range parts {
				names = append(names, p.name)
			}
			require.Equal(t, row.parts, names)
			require.True(t, slices.ContainsFunc(parts[0].passed, func(f function) bool { return f.name == "Transport.RoundTrip" }))
			retries := slices.ContainsFunc(parts[1].passed, func(f function) bool { return strings.HasPrefix(f.file, "internal/retryloop/") })
			require.Equal(t, row.retries, retries)
			require.Subset(t, parts[len(parts)-1].passed, parts[0].passed)
			require.NotSubset(t, parts[1].passed, parts[0].passed, "what is before Base is not after it")
			require.Less(t, len(parts[0].passed), len(parts[len(parts)-1].passed))
		})
	}
}
