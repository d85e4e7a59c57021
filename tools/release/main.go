// Release makes the checkout ready to be tagged with a version:
//
//	GOWORK=off go -C tools run ./release v0.2.0
//
// Every module that requires another one of this repository requires this version of it, the head of CHANGELOG.md moves from
// Unreleased to the version, and the tags that make the release are printed, one to a line. It changes files and nothing
// else: docs/releasing.md says what a person does with them.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// release changes nothing unless all of it can be done.
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
