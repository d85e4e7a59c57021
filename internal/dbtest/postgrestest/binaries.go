package postgrestest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
)

// ErrNotInstalled means that no PostgreSQL server is installed.
var ErrNotInstalled = errors.New("no PostgreSQL server is installed: on Debian, apt-get install postgresql; " +
	"or set " + Variable + " to the DSN of a running one")

// debian is the directory of the server's programs on Debian. They are not in PATH,
// because several versions may be installed.
const debian = "/usr/lib/postgresql"

// binaries returns the directory of the server's programs: the one in PATH, or the newest version of Debian's.
func binaries() (string, error) {
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		return "", fmt.Errorf("%w (none is started on %s)", ErrNotInstalled, runtime.GOOS)
	}
	for _, dir := range candidates() {
		if complete(dir) {
			return dir, nil
		}
	}
	return "", ErrNotInstalled
}

func candidates() []string {
	var dirs []string
	if initdb, err := exec.LookPath("initdb"); err == nil {
		// The programs find each other and their data relative to their own path.
		if target, err := filepath.EvalSymlinks(initdb); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	versions, _ := os.ReadDir(debian) // The directory is missing unless this is Debian.
	var numbers []int
	for _, v := range versions {
		if n, err := strconv.Atoi(v.Name()); err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	for _, n := range slices.Backward(numbers) {
		dirs = append(dirs, filepath.Join(debian, strconv.Itoa(n), "bin"))
	}
	return dirs
}

func complete(dir string) bool {
	for _, name := range [...]string{"initdb", "pg_ctl", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}
