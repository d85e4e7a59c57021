package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// tracked returns the files that match the patterns, exist, and are not ignored by git.
func tracked(patterns ...string) ([]string, error) {
	out, err := output(".", nil, "git", append([]string{"ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	files := strings.FieldsFunc(out, func(r rune) bool { return r == 0 })
	slices.Sort(files)
	return slices.DeleteFunc(slices.Compact(files), func(name string) bool {
		_, err := os.Stat(name)
		return os.IsNotExist(err)
	}), nil
}

// contents returns the texts of the tracked files that match the patterns, by name.
func contents(patterns ...string) (map[string]string, error) {
	files, err := tracked(patterns...)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		texts[name] = string(text)
	}
	return texts, nil
}

// output runs a command in dir, with env added to the environment, and returns its standard output. An error contains all
// that the command wrote.
func output(dir string, env []string, name string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s in %s: %w\n%s%s", strings.Join(cmd.Args, " "), dir, err, out.String(), errs.String())
	}
	return out.String(), nil
}

// lines returns the lines of text that are not empty.
func lines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return line == "" })
}

// problems returns an error with a line for each problem, or nil if there is none.
func problems(what string, all []string) error {
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%s:\n  %s", what, strings.Join(all, "\n  "))
}
