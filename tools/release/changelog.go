package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

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
