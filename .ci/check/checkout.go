package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// tracked are the files that match, under version control or about to be, that exist.
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

// output runs a command in dir, with env beside the environment, and gives what it wrote to its standard output. An error
// tells what it wrote to the other.
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

// lines are those of text that are not empty.
func lines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return line == "" })
}

// problems is an error with a line for each, or nil where there is none.
func problems(what string, all []string) error {
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%s:\n  %s", what, strings.Join(all, "\n  "))
}

// copyFiles copies these files, whose names are relative, to below dir.
func copyFiles(dir string, files []string) error {
	from := os.DirFS(".")
	for _, name := range files {
		content, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		if err := writeFile(dir, name, content); err != nil {
			return err
		}
	}
	return nil
}
