package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// module is a module of the repository.
type module struct {
	file string // the path of its go.mod
	dir  string // from the root of the repository, with slashes; "" is the root itself
	mod  *modfile.File
}

// findModules returns the modules with a go.mod under version control, the root first.
func findModules(root string) ([]module, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--", "go.mod", "*/go.mod")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all []module
	for _, name := range strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }) {
		m := module{file: filepath.Join(root, filepath.FromSlash(name)), dir: strings.TrimPrefix(path.Dir(name), ".")}
		content, err := os.ReadFile(m.file)
		if err != nil {
			return nil, err
		}
		if m.mod, err = modfile.Parse(m.file, content, nil); err != nil {
			return nil, err
		}
		if m.mod.Module == nil {
			return nil, fmt.Errorf("%s names no module", m.file)
		}
		all = append(all, m)
	}
	if len(all) == 0 || all[0].dir != "" && !slices.ContainsFunc(all, func(m module) bool { return m.dir == "" }) {
		return nil, errors.New("no go.mod in the root of the repository")
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.dir, b.dir) })
	return all, nil
}

func (m module) path() string { return m.mod.Module.Mod.Path }

// released reports whether the module gets a tag. Benchmarks, crash tests, examples and tools get none.
func (m module) released() bool {
	top, _, _ := strings.Cut(m.dir, "/")
	return !slices.Contains([]string{"benchmarks", "crashtest", "examples", "tools"}, top)
}

// tag returns the tag that the go command looks for: the directory of the module and the version.
func (m module) tag(version string) string { return path.Join(m.dir, version) }

// requiring returns the go.mod with this version of all required modules of the repository, or nil if there is none.
func (m module) requiring(modules []module, version string) ([]byte, error) {
	found := false
	for _, r := range m.mod.Require {
		i := slices.IndexFunc(modules, func(other module) bool { return other.path() == r.Mod.Path })
		if i < 0 {
			continue
		}
		if m.released() && !modules[i].released() {
			return nil, fmt.Errorf("%s requires %s, which is not released", m.path(), r.Mod.Path)
		}
		if err := m.mod.AddRequire(r.Mod.Path, version); err != nil {
			return nil, err
		}
		found = true
	}
	if !found {
		return nil, nil
	}
	return m.mod.Format()
}

// checkVersion returns an error for a version that the go command does not accept, or that is not the newest.
func checkVersion(version string, modules []module) error {
	switch {
	case semver.Canonical(version) != version:
		return fmt.Errorf("%q is no version: they look like v1.2.3 or v1.2.3-rc.1, without build metadata", version)
	case semver.Major(version) != "v0" && semver.Major(version) != "v1":
		return fmt.Errorf("%s: from v2 on the major version is part of each module's path, and of all imports", version)
	}
	for _, m := range modules {
		for _, r := range m.mod.Require {
			ours := slices.ContainsFunc(modules, func(other module) bool { return other.path() == r.Mod.Path })
			if ours && semver.Compare(version, r.Mod.Version) < 0 {
				return fmt.Errorf("%s is older than %s, which %s requires of %s", version, r.Mod.Version, m.path(), r.Mod.Path)
			}
		}
	}
	return nil
}
