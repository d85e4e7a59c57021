package sqlitekit

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrMoved means that the database's file is not where it was: removed, renamed,
// or another in its place. What would be written now would be forgotten at the next start.
// Nothing was changed.
var ErrMoved = errors.New("sqlitestore: the database file was moved")

// resolve makes an absolute path of what Open is given, and finds what is wrong
// with it. SQLite would say "unable to open database file: out of memory".
func resolve(path string) (string, error) {
	switch {
	case path == "" || path == ":memory:":
		return "", fmt.Errorf("sqlitestore: %q is no file: what is stored must outlive the process "+
			"(a Memory is for what need not)", path)
	case strings.HasPrefix(path, "file:"):
		return "", fmt.Errorf("sqlitestore: %q is a URI, and not a path", path)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("sqlitestore: %q has a NUL in it", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sqlitestore: %w", err)
	}
	switch info, err := os.Stat(filepath.Dir(path)); {
	case err != nil:
		return "", fmt.Errorf("sqlitestore: the database's directory: %w", err)
	case !info.IsDir():
		return "", fmt.Errorf("sqlitestore: %s is not a directory", filepath.Dir(path))
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("sqlitestore: %s is not a regular file, but %v", path, info.Mode())
	}
	return path, nil
}

// DataSource is how the driver is told to open a file: a URI, in which each
// character of the path stands for itself, and what each connection is to begin
// with. mode is rw or rwc: without c a file that is missing is not created, so
// that a pool never goes on with a new and empty one.
func DataSource(path, mode string, pragmas ...string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/…
	}
	query := url.Values{"mode": {mode}, "_txlock": {"immediate"}, "_pragma": pragmas}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String()
}

// File tells whether the database is still the one that was opened. SQLite does
// not notice: on Unix it writes on into a file that has no name any more.
//
// It never opens the file. Closing it would drop the locks that SQLite has on it,
// as locks belong to the process.
type File struct {
	// Path is where it is, from the root.
	Path string

	info fs.FileInfo
}

func newFile(path string) (File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return File{}, fmt.Errorf("sqlitestore: %w", err)
	}
	return File{Path: path, info: info}, nil
}

// Check is an ErrMoved, or nil.
func (f *File) Check() error {
	if runtime.GOOS == "windows" {
		return nil // an open file can be neither moved nor removed there
	}
	info, err := os.Stat(f.Path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMoved, err)
	}
	if !os.SameFile(f.info, info) {
		return fmt.Errorf("%w: %s is another file now", ErrMoved, f.Path)
	}
	return nil
}
