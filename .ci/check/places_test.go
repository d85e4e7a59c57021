package main

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/doctable"
)

// Each row adds one thing, and nothing else, to the texts of this repository.
func TestPlaces(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	all, err := textsOfPlaces()
	require.NoError(t, err)
	const sentinel = "\n\tErrDummy = neterr.Named(\"dummy\", \"dummy\")\n"
	for _, row := range []struct {
		name, file     string
		before, after  string // before: what after follows; "": the end of the file
		change, member string // none of its places has the member
	}{
		{"nothing is added: nothing is missing", "errors.go", "", "", "", ""},
		{"a dialect", "internal/ratelimitheader/fields.go", "return meaning{partUsage, custom}\n", "\tcase \"Dummy-Quota\":\n", "a rate-limit dialect", "Dummy-Quota"},
		{"a reason", "errors.go", "", sentinel, "a reason to stop", "ErrDummy"},
		{"a gate", "errors.go", "", sentinel + "func f() *Error { return &Error{Reason: ErrDummy, NotBefore: at} }\n", "a gate before an attempt", "ErrDummy"},
		{"a metric", "resilientotel/names.go", "", "\tmetricDummy = \"resilienthttp.client.dummies\"\n", "a metric", "resilienthttp.client.dummies"},
		{"a store", "durable/dummystore/go.mod", "", "module dummystore\n", "a store", "durable/dummystore"},
	} {
		t.Run(row.name, func(t *testing.T) {
			texts := maps.Clone(all)
			text := texts[row.file]
			require.Contains(t, text, row.before)
			at := len(text)
			if row.before != "" {
				at = strings.LastIndex(text, row.before) + len(row.before)
			}
			texts[row.file] = text[:at] + row.after + text[at:]
			missing, err := missingPlaces(texts)
			require.NoError(t, err)
			for _, change := range usualChanges() {
				if change.name != row.change {
					continue
				}
				for _, n := range change.needed {
					file := strings.NewReplacer("NAME", row.member, "PAGE", "docs/durable.md").Replace(n.file)
					expect(t, missing, change.name+", "+row.member+": "+file+": want "+n.what)
				}
			}
			if row.change == "" {
				require.Empty(t, missing)
			}
		})
	}
}

func TestPlaces_movedBeginning(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	all, err := textsOfPlaces()
	require.NoError(t, err)
	for _, file := range []string{"internal/ratelimitheader/fields.go", "errors.go", "resilientotel/names.go"} {
		t.Run(file, func(t *testing.T) {
			texts := maps.Clone(all)
			require.NotEmpty(t, texts[file])
			delete(texts, file)
			_, err := missingPlaces(texts)
			require.ErrorContains(t, err, "there is none")
		})
	}
}

func TestPlaces_staleNames(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	texts, err := textsOfPlaces()
	require.NoError(t, err)
	require.Empty(t, staleNames(texts))
	texts[architecture] = "`planRetry` in `plan.go`, `span` in `internal/quota/span.go`, `planDummy` in `dummy.go` and `internal/quota/dummy.go`\n## Usual changes\n`dummyMetric`"
	require.Equal(t, []string{
		architecture + ": there is no `planDummy` in the client",
		architecture + ": there is no `dummy.go` in the client",
		architecture + ": there is no `internal/quota/dummy.go` in the client",
	}, staleNames(texts))
}

func TestPlaces_page(t *testing.T) {
	doctable.Overview(t, "../../docs/maintainers/architecture.md", "places", changesTable())
}
