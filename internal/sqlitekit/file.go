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

// ErrMoved means that the database file was removed, renamed or replaced while it
// was open. A write would be lost at the next start. Nothing was changed.
var ErrMoved = errors.New("sqlitestore: the database file was moved")

// resolve returns the absolute path of Open's argument. It reports errors for which
// SQLite has only "unable to open database file: out of memory".
func resolve(path string) (string, error) {
	switch {
	case path == "" || path == ":memory:":
		return "", fmt.Errorf("sqlitestore: path %q is not a file (use a Memory store for records in memory)", path)
	case strings.HasPrefix(path, "file:"):
		return "", fmt.Errorf("sqlitestore: path %q is a URI, want a path", path)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("sqlitestore: path %q has a NUL byte", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sqlitestore: %w", err)
	}
	switch info, err := os.Stat(filepath.Dir(path)); {
	case err != nil:
		return "", fmt.Errorf("sqlitestore: directory of the database: %w", err)
	case !info.IsDir():
		return "", fmt.Errorf("sqlitestore: %s is not a directory", filepath.Dir(path))
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("sqlitestore: %s is not a regular file (mode %v)", path, info.Mode())
	}
	return path, nil
}

// privateMode returns a URI parameter that makes SQLite create the database with mode 0600, and nothing if the file
// exists. SQLite gives -wal and -shm the mode of the database. done must be called after the database was created.
//
// The parameter names a file to copy the mode from. Package os must not create the database: closing it would drop the
// locks that other connections of this process have on it.
func privateMode(path string) (parameter string, done func(), err error) {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return "", func() {}, nil // Other errors are SQLite's to report.
	}
	model, err := os.CreateTemp("", "sqlitestore-*") // mode 0600
	if err != nil {
		return "", nil, fmt.Errorf("sqlitestore: %w", err)
	}
	done = func() { _ = os.Remove(model.Name()) }
	return "&modeof=" + url.QueryEscape(model.Name()), done, model.Close()
}

// DataSource returns the driver's URI for a file. Each character of path stands for
// itself; the pragmas are executed on each connection. mode is rw or rwc. With rw a
// missing file is an error, so that a pool does not go on with a new, empty file.
func DataSource(path, mode string, pragmas ...string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/…
	}
	query := url.Values{"mode": {mode}, "_txlock": {"immediate"}, "_pragma": pragmas}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String()
}

// File checks whether the database is still the file that was opened. SQLite does
// not: on Unix it continues to write to a file that has no name any more.
//
// It never opens the file. Closing it would drop SQLite's locks, because locks belong to the process.
type File struct {
	// Path is the absolute path.
	Path string

	info fs.FileInfo
}

// Check returns ErrMoved or nil.
func (f *File) Check() error {
	if runtime.GOOS == "windows" {
		return nil // An open file cannot be moved or removed there.
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
