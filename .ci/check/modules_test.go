package main

import (
	"encoding/json"
	"strings"
	"testing"
)

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
				if err := json.Unmarshal([]byte(text), &all[i]); err != nil {
					t.Fatal(err)
				}
			}
			got := strings.Join(inOrder(all, row.used, row.changelog), "\n")
			if row.says == "" && got != "" || !strings.Contains(got, row.says) {
				t.Errorf("got %q, want %q", got, row.says)
			}
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
		{"retract, no reason: a problem", `{"Go": "1.26.0", "Retract": [{"Low": "v0.1.0", "High": "v0.1.0"}]}`, "without a reason"},
		{"retract, a reason: no problem", `{"Go": "1.26.0", "Retract": [{"Low": "v0.1.0", "High": "v0.1.0", "Rationale": "broken"}]}`, ""},
		{"a module of the repository: no problem", `{"Go": "1.26.0", "Replace": [{"Old": {"Path": "` + home + `/a"}, "New": {"Path": "../a"}}]}`, ""},
		{"another module: a problem", `{"Go": "1.26.0", "Replace": [{"Old": {"Path": "` + home + `-x"}, "New": {"Path": "../a"}}]}`, "replaces " + home + "-x"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var m module
			if err := json.Unmarshal([]byte(row.module), &m); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(directives([]module{m}), "\n")
			if row.says == "" && got != "" || !strings.Contains(got, row.says) {
				t.Errorf("got %q, want %q", got, row.says)
			}
		})
	}
}
