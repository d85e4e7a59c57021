package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrorsPage requires an entry in docs/errors.md for each exported error of the
// repository. An error of a driver package may stand there under the name of its alias.
func TestErrorsPage(t *testing.T) {
	page, err := os.ReadFile("errors.md")
	require.NoError(t, err)
	found := 0
	for file, names := range exportedErrors(t) {
		dir := filepath.Dir(file)
		for _, name := range names {
			found++
			entries := []string{"`" + filepath.Base(dir) + "." + name + "`"}
			if dir == "." {
				entries = []string{"| `" + name + "` |"}
			}
			has := false
			for _, entry := range entries {
				has = has || strings.Contains(string(page), entry)
			}
			if !has {
				t.Errorf("%s declares %s: got no entry in docs/errors.md, want one of %v", file, name, entries)
			}
		}
	}
	require.Greater(t, found, 11, "errors of the root and of other packages")
}

// exportedErrors returns the names of the exported errors that the files of this repository
// declare, by file.
func exportedErrors(t *testing.T) map[string][]string {
	t.Helper()
	declaration := regexp.MustCompile(`(?m)^(?:\t|var )(Err[A-Z]\w*) += `)
	repository := os.DirFS("..")
	names := map[string][]string{}
	require.NoError(t, fs.WalkDir(repository, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains([]string{"internal", "examples", "benchmarks", "crashtest"}, entry.Name()) || len(path) > 1 && strings.HasPrefix(path, ".")):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		content, err := fs.ReadFile(repository, path)
		for _, match := range declaration.FindAllStringSubmatch(string(content), -1) {
			names[path] = append(names[path], match[1])
		}
		return err
	}))
	return names
}
