// Release prepares the checkout for the tags of a version:
//
//	GOWORK=off go -C tools run ./release v0.2.0
//
// Each module then requires this version of the other modules of the repository, and the section Unreleased of CHANGELOG.md
// gets the version. It prints the tags of the release, one a line. It changes files only: CONTRIBUTING.md has the other steps.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: release vX.Y.Z")
	}
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("not in a checkout: %w", err)
	}
	tags, err := release(strings.TrimSpace(string(top)), args[0], time.Now())
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(tags, "\n"))
	return nil
}

// release changes all files, or none.
func release(root, version string, now time.Time) (tags []string, err error) {
	modules, err := findModules(root)
	if err != nil {
		return nil, err
	}
	if err := checkVersion(version, modules); err != nil {
		return nil, err
	}
	changes, err := moveHead(root, version, now)
	if err != nil {
		return nil, err
	}
	for _, m := range modules {
		content, err := m.requiring(modules, version)
		if err != nil {
			return nil, err
		}
		if content != nil {
			changes[m.file] = content
		}
		if m.released() {
			tags = append(tags, m.tag(version))
		}
	}
	for name, content := range changes {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return nil, err
		}
	}
	return tags, nil
}

const unreleased = "## Unreleased\n"

// moveHead returns the changelog with the section Unreleased moved to the version and its date.
func moveHead(root, version string, now time.Time) (map[string][]byte, error) {
	name := filepath.Join(root, "CHANGELOG.md")
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	head, rest, ok := strings.Cut(string(content), unreleased)
	if !ok {
		return nil, fmt.Errorf("%s has no line %q", name, strings.TrimSpace(unreleased))
	}
	if regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(version) + `\b`).MatchString(rest) {
		return nil, fmt.Errorf("%s has a section %s already", name, version)
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	if strings.TrimSpace(section) == "" {
		return nil, fmt.Errorf("%s has nothing under %s, so there is nothing to release", name, strings.TrimSpace(unreleased))
	}
	moved := head + unreleased + "\n## " + version + ", " + now.UTC().Format(time.DateOnly) + "\n" + rest
	return map[string][]byte{name: []byte(moved)}, nil
}
