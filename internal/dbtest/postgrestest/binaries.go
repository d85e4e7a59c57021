package postgrestest

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
)

// ErrNotInstalled means that no PostgreSQL server is installed.
var ErrNotInstalled = errors.New("no PostgreSQL server is installed: on Debian, apt-get install postgresql; " +
	"or set " + Variable + " to the DSN of a running one")

// debian matches the directories of the server's programs on Debian, in the order of versions. They are not in PATH,
// because several versions may be installed.
const debian = "/usr/lib/postgresql/[1-9][0-9]/bin"

// binaries returns the directory of the server's programs: the one in PATH, or the newest version of Debian's.
func binaries() (string, error) {
	dirs, _ := filepath.Glob(debian) // The pattern is valid.
	if initdb, err := exec.LookPath("initdb"); err == nil {
		// The programs find each other and their data relative to their own path.
		if target, err := filepath.EvalSymlinks(initdb); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	for _, dir := range slices.Backward(dirs) {
		if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", ErrNotInstalled
}
