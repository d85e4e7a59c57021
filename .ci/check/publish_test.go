package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPublish releases two modules. The second one requires the first.
func TestPublish(t *testing.T) {
	for _, row := range []struct {
		name     string
		requires string // of the first by the second; "": the release
		says     string // "": no error
	}{
		{"the release: installed", "", ""},
		{"never released: an error", "v0.0.0", "v0.0.0"},
		{"a version without a tag: an error", "v0.9.0", "v0.9.0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Setenv("GOPROXY", "off") // these modules need no others
			r := &madeUp{dir: t.TempDir(), version: fmt.Sprintf("v0.999998.0-ci.%d", time.Now().UnixNano())}
			for name, content := range map[string]string{
				"go.mod":         "module " + home + "\n\ngo 1.26.0\n",
				"root.go":        "// Package resilienthttp is a test.\npackage resilienthttp\n",
				"nested/go.mod":  fmt.Sprintf("module %s/nested\n\ngo 1.26.0\n\nrequire %[1]s %s\n\nreplace %[1]s => ../\n", home, cmp.Or(row.requires, r.version)),
				"nested/nest.go": fmt.Sprintf("// Package nested is a test.\npackage nested\n\nimport _ %q\n", home),
			} {
				require.NoError(t, writeFile(r.source(), name, []byte(content)))
			}
			require.NoError(t, errors.Join(
				r.git("init", "--quiet"), r.git("add", "--all"), r.git("commit", "--quiet", "--message=release"),
				r.tag(r.version, path.Join("nested", r.version)), r.serve(),
			))
			err := r.installAll()
			if row.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.says)
			require.ErrorContains(t, err, "nested cannot be installed")
		})
	}
}

func TestInOrder(t *testing.T) {
	const root, nested = `{"Dir": ".", "Module": {"Path": "` + home + `"}}`, `{"Dir": "a/b", "Module": {"Path": "` + home + `/a/b"},
		"Require": [{"Path": "` + home + `", "Version": "v0.1.0"}, {"Path": "golang.org/x/time", "Version": "v0.16.0"}],
		"Replace": [{"Old": {"Path": "` + home + `"}, "New": {"Path": "../../"}}]}`
	const changelog = "# Changelog\n\n## Unreleased\n\n- x\n"
	for _, row := range []struct {
		name, nested, changelog, says string
		used                          []string
	}{
		{"in order: no problem", nested, changelog, "", []string{".", "a/b"}},
		{"not in the workspace: a problem", nested, changelog, "go.work does not use a/b", []string{"."}},
		{"never released: a problem", strings.Replace(nested, "v0.1.0", "v0.0.0", 1), changelog, "requires " + home + " v0.0.0, want v0.1.0", []string{".", "a/b"}},
		{"older than the last release: a problem", nested, changelog + "## v0.2.0, 2027-01-01\n\n## v0.1.0, 2026-12-01\n", "v0.1.0, want v0.2.0", []string{".", "a/b"}},
		{"another directory: a problem", strings.Replace(nested, "../../", "../", 1), changelog, "does not replace " + home, []string{".", "a/b"}},
		{"another path: a problem", strings.Replace(nested, "/a/b\"}", "/b\"}", 1), changelog, "want " + home + "/a/b", []string{".", "a/b"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			all := make([]module, 2)
			for i, text := range []string{root, row.nested} {
				require.NoError(t, json.Unmarshal([]byte(text), &all[i]))
			}
			expect(t, inOrder(all, row.used, row.changelog), row.says)
		})
	}
}

func TestDirectives(t *testing.T) {
	for _, row := range []struct{ name, module, says string }{
		{"none: no problem", `{"Go": "1.26.0"}`, ""},
		{"an older Go: a problem", `{"Go": "1.25.0"}`, "go 1.25.0"},
		{"a toolchain: a problem", `{"Go": "1.26.0", "Toolchain": "go1.26.1"}`, "no toolchain"},
		{"godebug: a problem", `{"Go": "1.26.0", "GoDebug": [{"Key": "panicnil", "Value": "1"}]}`, "godebug"},
		{"exclude: a problem", `{"Go": "1.26.0", "Exclude": [{"Path": "a.test/b", "Version": "v1.0.0"}]}`, "exclude"},
		{"a module of the repository: no problem", `{"Go": "1.26.0", "Replace": [{"Old": {"Path": "` + home + `/a"}, "New": {"Path": "../a"}}]}`, ""},
		{"another module: a problem", `{"Go": "1.26.0", "Replace": [{"Old": {"Path": "` + home + `-x"}, "New": {"Path": "../a"}}]}`, "replaces " + home + "-x"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var m module
			require.NoError(t, json.Unmarshal([]byte(row.module), &m))
			expect(t, directives([]module{m}), row.says)
		})
	}
}

func TestJudge(t *testing.T) {
	const passes, fails, skips = `{"Action":"pass","Package":"p","Test":"A"}`, `{"Action":"fail","Package":"p","Test":"A"}`, `{"Action":"skip","Package":"p","Test":"A"}`
	for _, row := range []struct {
		name  string
		runs  []string
		says  string
		error string
	}{
		{"passes: counted once", []string{passes, passes}, "1 passed, 0 failed", ""},
		{"fails in one run: failed", []string{passes, fails}, "0 passed, 1 failed", "tests failed"},
		{"skipped in one run: passed", []string{skips, passes}, "1 passed, 0 failed", ""},
		{"skipped in all runs: an error", []string{skips, skips}, "skipped in every run: p A", "skipped"},
		{"does not build: failed", []string{passes, `{"Action":"fail","Package":"q"}`}, "failed: q", "tests failed"},
		{"no test ran: an error", []string{""}, "0 passed", "no test ran"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var files []string
			for i, run := range row.runs {
				files = append(files, filepath.Join(t.TempDir(), string(rune('a'+i))))
				require.NoError(t, os.WriteFile(files[i], []byte(run+"\n"), 0o600))
			}
			var out strings.Builder
			err := judge(files, &out)
			require.Contains(t, out.String(), row.says)
			if row.error == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, row.error)
			}
		})
	}
}
