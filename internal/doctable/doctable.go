// Package doctable keeps the generated tables in docs/*.md equal to the code. Tests use it: they
// take each default from the code and pass it to [Check], and run each example and pass its
// transcript to [Example]. [Overview] is for tables of other kinds.
//
// A page marks the place of a table with two comments of HTML:
//
//	<!-- defaults:begin breaker -->
//	<!-- defaults:end -->
//	<!-- example:begin breaker -->
//	<!-- example:end -->
//
// The environment variable UPDATE_DOCS=1 makes a test write the table instead of comparing it.
package doctable

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// Row is a row of a table: a field of a configuration and its default.
type Row struct {
	Field   string // such as Breaker.Cooldown
	Default any    // formatted by Format
	Unit    string // such as "seconds", or a few words about the meaning
	Range   string // the limits, and the meaning of a negative value
}

// Check fails the test if the table of defaults called name in the file page differs from rows, or
// if the page has no such table.
func Check(t *testing.T, page, name string, rows []Row) {
	t.Helper()
	compare(t, page, "defaults", name, table(rows))
}

// Table fails the test if the table called name in the file page differs from text, or if the page has no such table.
func Table(t *testing.T, page, name, text string) {
	t.Helper()
	compare(t, page, "defaults", name, text)
}

// Example fails the test if the example called name in the file page differs from the transcript,
// or if the page has no such example.
func Example(t *testing.T, page, name, transcript string) {
	t.Helper()
	compare(t, page, "example", name, "```text\n"+strings.TrimRight(transcript, "\n")+"\n```\n")
}

// Overview fails the test if the table called name in the file page differs from the table, or if the page has no such table.
func Overview(t *testing.T, page, name, table string) {
	t.Helper()
	compare(t, page, "overview", name, table)
}

func compare(t *testing.T, page, kind, name, text string) {
	t.Helper()
	content, err := os.ReadFile(page) //nolint:gosec // the test names it
	if err != nil {
		t.Fatal(err)
	}
	updated, err := replace(string(content), kind, name, text)
	switch {
	case err != nil:
		t.Fatalf("%s: %v", page, err)
	case updated == string(content):
	case os.Getenv("UPDATE_DOCS") != "1":
		t.Errorf("%s: %s %q: the page differs from the code; run the test with UPDATE_DOCS=1; want\n%s", page, kind, name, text)
	default:
		if err := os.WriteFile(page, []byte(updated), 0o644); err != nil { //nolint:gosec // a document that all may read
			t.Fatal(err)
		}
	}
}

// replace returns the document with another text between the markers of that kind and name.
func replace(document, kind, name, text string) (string, error) {
	begin, end := "<!-- "+kind+":begin "+name+" -->\n", "<!-- "+kind+":end -->"
	before, rest, found := strings.Cut(document, begin)
	if !found {
		return "", fmt.Errorf("no marker %q", strings.TrimSpace(begin))
	}
	_, after, found := strings.Cut(rest, end)
	if !found {
		return "", fmt.Errorf("no %q after %q", end, strings.TrimSpace(begin))
	}
	return before + begin + text + end + after, nil
}

func table(rows []Row) string {
	var b strings.Builder
	b.WriteString("| field | default | unit | range |\n|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Field, Format(r.Default), r.Unit, r.Range)
	}
	return b.String()
}

// Format returns a default as text: a duration in a unit such as 2.5 s, other values as fmt
// prints them. A string is returned as it is.
func Format(value any) string {
	d, ok := value.(time.Duration)
	if !ok {
		return fmt.Sprint(value)
	}
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if d >= unit.size && d%(unit.size/10) == 0 {
			return fmt.Sprintf("%g %s", float64(d)/float64(unit.size), unit.name)
		}
	}
	return d.String()
}
