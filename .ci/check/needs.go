package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// need is a program that tests start with their own configuration. The services of its Debian package are not used.
type need struct {
	program  string
	dirs     []string // patterns of further directories beside PATH
	packages []string // names of Debian packages
	why      string
}

func allNeeds() []need {
	cc, _ := output(".", nil, "go", "env", "CC")
	return []need{
		{"go", nil, nil, "everything"},
		{"git", nil, []string{"git"}, "the list of files"},
		{strings.TrimSpace(cc), nil, []string{"gcc", "libc6-dev"}, "the race detector"},
		// The directories of internal/dbtest/postgrestest. It is needed beside RESILIENTHTTP_POSTGRES_DSN too: some tests crash their server.
		{"postgres", []string{"/usr/lib/postgresql/*/bin"}, []string{"postgresql"}, "the tests of stores in PostgreSQL"},
		{"pgbouncer", nil, []string{"pgbouncer"}, "tests of stores behind a pooler"},
		{"nginx", nil, []string{"nginx-light"}, "the test of a server's restart"},
		{"redis-server", nil, []string{"redis-server"}, "the tests of stores in Redis"},
		{"chromium", nil, []string{"chromium"}, "the tests of pages"},
		{"promtool", nil, []string{"prometheus"}, "the tests of alerts"},
	}
}

// needs checks that the programs of the other steps exist, and installs missing ones if it may.
func needs([]string) error {
	var missing []need
	for _, n := range allNeeds() {
		if !n.there() {
			missing = append(missing, n)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := install(missing); err != nil {
		return err
	}
	var still []string
	for _, n := range missing {
		if !n.there() {
			still = append(still, fmt.Sprintf("%s, for %s", n.program, n.why))
		}
	}
	return problems("not installed", still)
}

// there reports whether the program is installed, and prints its version.
func (n need) there() bool {
	program, err := exec.LookPath(n.program)
	if err != nil {
		var found []string
		for _, dir := range n.dirs {
			more, _ := filepath.Glob(filepath.Join(dir, n.program))
			found = append(found, more...)
		}
		if len(found) == 0 {
			return false
		}
		program = slices.Max(found)
	}
	for _, flag := range []string{"--version", "version", "-v"} {
		if text, err := exec.Command(program, flag).Output(); err == nil && len(text) > 0 {
			fmt.Println(lines(string(text))[0])
			return true
		}
	}
	fmt.Println(program)
	return true
}

// install installs the packages and starts none of their services (invoke-rc.d(8)).
func install(missing []need) error {
	if _, err := exec.LookPath("apt-get"); err != nil || os.Getuid() != 0 {
		var all []string
		for _, n := range missing {
			all = append(all, fmt.Sprintf("%s, for %s: Debian's %s", n.program, n.why, strings.Join(n.packages, ", ")))
		}
		return problems("to be installed", all)
	}
	const policy, conf = "/usr/sbin/policy-rc.d", "/etc/postgresql-common/createcluster.conf"
	if _, err := os.Stat(policy); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
			return err
		}
		defer os.Remove(policy)
	}
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	apt := func(args ...string) error {
		return runIn(".", env, "apt-get", append([]string{"install", "-qy", "--no-install-recommends"}, args...)...)
	}
	if err := runIn(".", env, "apt-get", "update", "-q"); err != nil {
		return err
	}
	var packages []string
	for _, n := range missing {
		packages = append(packages, n.packages...)
	}
	if slices.Contains(packages, "postgresql") {
		if err := apt("postgresql-common"); err != nil {
			return err
		}
		if err := runIn(".", nil, "sed", "-i", "s/^#\\? *create_main_cluster .*/create_main_cluster = false/", conf); err != nil {
			return err
		}
	}
	return apt(packages...)
}
