package main

import (
	"fmt"
	"os"
	"path"
	"strings"
	"testing"
	"time"
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
			t.Cleanup(r.forget)
			if row.requires == "" {
				row.requires = r.version
			}
			for name, content := range map[string]string{
				"go.mod":         "module " + home + "\n\ngo 1.26.0\n",
				"root.go":        "// Package resilienthttp is a test.\npackage resilienthttp\n",
				"nested/go.mod":  fmt.Sprintf("module %s/nested\n\ngo 1.26.0\n\nrequire %[1]s %s\n\nreplace %[1]s => ../\n", home, row.requires),
				"nested/nest.go": fmt.Sprintf("// Package nested is a test.\npackage nested\n\nimport _ %q\n", home),
			} {
				if err := writeFile(r.source(), name, []byte(content)); err != nil {
					t.Fatal(err)
				}
			}
			for _, err := range []error{
				r.git("init", "--quiet"), r.git("add", "--all"), r.git("commit", "--quiet", "--message=release"),
				r.tag(r.version, path.Join("nested", r.version)), r.serve(),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			err := r.installAll()
			switch {
			case row.says == "" && err != nil:
				t.Error(err)
			case row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says) || !strings.Contains(err.Error(), "nested cannot be installed")):
				t.Errorf("got %v, want an error with %s", err, row.says)
			}
		})
	}
}

func TestForget(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("GOMODCACHE", cache)
	r := &madeUp{version: "v0.999998.0-ci.1"}
	gone := []string{
		home + "@" + r.version + "/go.mod", home + "/a/b@" + r.version + "/b.go",
		"cache/download/" + home + "/@v/" + r.version + ".zip", "cache/download/" + home + "/a/b/@v/" + r.version + ".info",
	}
	stays := []string{home + "@v0.1.0/go.mod", "cache/download/" + home + "/@v/list", "golang.org/x/time@v0.16.0/go.mod"}
	for _, name := range append(gone, stays...) {
		if err := writeFile(cache, name, nil); err != nil {
			t.Fatal(err)
		}
	}
	r.forget()
	for _, name := range gone {
		if _, err := os.Stat(path.Join(cache, name)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	for _, name := range stays {
		if _, err := os.Stat(path.Join(cache, name)); err != nil {
			t.Error(err)
		}
	}
}
