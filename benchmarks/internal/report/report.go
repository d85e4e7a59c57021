// Package report writes what was measured to docs/performance.md, where each
// command has a section of its own, between two markers.
package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const page = "performance.md"

// Docs returns the repository's docs directory, from wherever in the repository
// a command is run.
func Docs() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "benchmarks", "go.mod")); err == nil {
			return filepath.Join(dir, "docs"), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("run this inside the repository: there is no benchmarks/go.mod above")
		}
		dir = parent
	}
}

// Write puts the section between its markers, in place of what is there, or at
// the end of the page.
func Write(docs, section, text string) error {
	if err := os.MkdirAll(docs, 0o755); err != nil { //nolint:gosec // documentation
		return err
	}
	name := filepath.Join(docs, page)
	old, err := os.ReadFile(name) //nolint:gosec // the caller's directory
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	text, err = replaced(string(old), section, text)
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644) //nolint:gosec // documentation
}

func replaced(page, section, text string) (string, error) {
	begin, end := "<!-- "+section+":begin -->", "<!-- "+section+":end -->"
	text = begin + "\n" + strings.TrimSpace(text) + "\n" + end
	from, to := strings.Index(page, begin), strings.Index(page, end)
	switch {
	case from < 0 && to < 0:
		if page = strings.TrimSpace(page); page != "" {
			page += "\n\n"
		}
		return page + text + "\n", nil
	case from < 0 || to < from:
		return "", fmt.Errorf("%s and %s do not both stand in the page, in this order", begin, end)
	}
	return page[:from] + text + page[to+len(end):], nil
}

// Rows returns the cells of the first table of the page whose heading begins so, for
// what draws figures anew that are not measured anew.
func Rows(docs, heading string) (rows [][]string, err error) {
	text, err := os.ReadFile(filepath.Join(docs, page)) //nolint:gosec // the caller's directory
	if err != nil {
		return nil, err
	}
	_, table, ok := strings.Cut(string(text), "\n| "+heading+" |")
	if !ok {
		return nil, fmt.Errorf("%s has no table whose heading begins with %q", page, heading)
	}
	for i, line := range strings.Split(table, "\n") {
		if i > 0 && !strings.HasPrefix(line, "|") {
			break
		}
		if i > 1 { // the heading, and the rule below it
			rows = append(rows, strings.Split(strings.Trim(line, "| "), " | "))
		}
	}
	return rows, nil
}

// Machine says what the figures were measured on, in one line.
func Machine() string {
	cpu := "unknown CPU"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores, %s/%s, %s", cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// Table is a table in Markdown.
type Table struct{ text strings.Builder }

// NewTable returns a table with that heading. All columns but the first hold
// numbers, and are set to the right.
func NewTable(heading ...string) *Table { return newTable("--:", heading) }

// NewTextTable returns a table with that heading, of which all columns hold text.
func NewTextTable(heading ...string) *Table { return newTable("---", heading) }

func newTable(others string, heading []string) *Table {
	t := &Table{}
	t.Row(heading...)
	t.text.WriteString("|---" + strings.Repeat("|"+others, len(heading)-1) + "|\n")
	return t
}

// Row adds a row.
func (t *Table) Row(cells ...string) {
	t.text.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// String is the table's Markdown.
func (t *Table) String() string { return t.text.String() }
