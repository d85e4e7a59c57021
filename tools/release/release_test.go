package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// repository has three modules that require each other, and one without a tag.
func repository(t *testing.T, changed map[string]string) string {
	t.Helper()
	files := map[string]string{
		"go.mod":          "module example.com/root\n\ngo 1.26.0\n",
		"a/go.mod":        "module example.com/root/a\n\ngo 1.26.0\n\nrequire example.com/root v0.1.0\n\nrequire example.com/root/i v0.1.0 // indirect\n\nreplace example.com/root => ../\n",
		"i/go.mod":        "module example.com/root/i\n\ngo 1.26.0\n\nrequire golang.org/x/time v0.16.0\n",
		"examples/go.mod": "module example.com/root/examples\n\ngo 1.26.0\n\nrequire example.com/root v0.1.0\n",
		"CHANGELOG.md":    "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n",
	}
	dir := t.TempDir()
	for name, content := range files {
		if other, ok := changed[name]; ok {
			content = other
		}
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
	}
	return dir
}

func TestRelease(t *testing.T) {
	dir := repository(t, nil)
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	tags, err := release(dir, "v0.2.0", now)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"v0.2.0", "a/v0.2.0", "i/v0.2.0"}; !slices.Equal(tags, want) {
		t.Errorf("tags %q, want %q", tags, want)
	}
	for name, want := range map[string]string{
		"go.mod":          "module example.com/root\n\ngo 1.26.0\n",
		"a/go.mod":        "module example.com/root/a\n\ngo 1.26.0\n\nrequire example.com/root v0.2.0\n\nrequire example.com/root/i v0.2.0 // indirect\n\nreplace example.com/root => ../\n",
		"i/go.mod":        "module example.com/root/i\n\ngo 1.26.0\n\nrequire golang.org/x/time v0.16.0\n",
		"examples/go.mod": "module example.com/root/examples\n\ngo 1.26.0\n\nrequire example.com/root v0.2.0\n",
		"CHANGELOG.md":    "# Changelog\n\n## Unreleased\n\n## v0.2.0, 2026-12-01\n\n### Added\n\n- A thing.\n",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := release(dir, "v0.2.0", now); err == nil {
		t.Error("released twice")
	}
}

func TestReleaseRefuses(t *testing.T) {
	for _, row := range []struct {
		name, version string
		changed       map[string]string
		says          string
	}{
		{"no version", "0.2.0", nil, "is no version"},
		{"a short one", "v0.2", nil, "is no version"},
		{"build metadata", "v0.2.0+x", nil, "is no version"},
		{"older", "v0.0.9", nil, "older than v0.1.0"},
		{"a major one", "v2.0.0", nil, "part of each module's path"},
		{"nothing new", "v0.2.0", map[string]string{"CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n## v0.1.0, 2026-11-01\n\n- x\n"}, "nothing to release"},
		{"no head", "v0.2.0", map[string]string{"CHANGELOG.md": "# Changelog\n"}, "has no line"},
		{"requires a module without a tag", "v0.2.0", map[string]string{
			"i/go.mod": "module example.com/root/i\n\ngo 1.26.0\n\nrequire example.com/root/examples v0.1.0\n",
		}, "which is not released"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := repository(t, row.changed)
			before := contents(t, dir)
			if _, err := release(dir, row.version, time.Now()); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%v, want %s", err, row.says)
			}
			if after := contents(t, dir); after != before {
				t.Errorf("changed:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

func contents(t *testing.T, dir string) (all string) {
	t.Helper()
	for _, name := range []string{"go.mod", "a/go.mod", "i/go.mod", "examples/go.mod", "CHANGELOG.md"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all += fmt.Sprintf("%s:\n%s", name, content)
	}
	return all
}
