package main

import (
	"slices"
	"strings"
	"testing"
)

func TestCheckPageList(t *testing.T) {
	pages := map[string]string{"README.md": "one two Name", "docs/a.md": strings.Repeat("word ", 11)}
	for _, row := range []struct{ name, list, want string }{
		{"all right: no problem", "README.md 3 Name\ndocs/a.md 10\n", ""},
		{"too many words: a problem", "README.md 3 Name\ndocs/a.md 9\n", "docs/a.md: 11 words, want at most 9 and a tenth of it"},
		{"unlimited: any number of words", "README.md 3 Name\ndocs/a.md unlimited\n", ""},
		{"unlimited, but it does not exist: a problem", "README.md 3 Name\ndocs/a.md 10\ndocs/b.md unlimited\n", "docs/b.md is missing"},
		{"a name without a page: a problem", "README.md 3\ndocs/a.md 10\n", "no page for Name"},
		{"a name with two pages: a problem", "README.md 3 Name\ndocs/a.md 10 Name\n", "Name has two pages"},
		{"a page without its name: a problem", "README.md 3\ndocs/a.md 10 Name\n", "docs/a.md does not document Name"},
		{"a page that is not listed: a problem", "README.md 3 Name\n", "docs/a.md is missing"},
		{"a listed page that does not exist: a problem", "README.md 3 Name\ndocs/a.md 10\ndocs/b.md 10\n", "docs/b.md is missing"},
		{"an unknown name: a problem", "README.md 3 Name one\ndocs/a.md 10\n", "the root package has no one"},
	} {
		t.Run(row.name, func(t *testing.T) { expect(t, checkPageList(row.list, pages, []string{"Name"}), row.want) })
	}
}

func TestCheckPageList_sum(t *testing.T) {
	code := "```go\n" + strings.Repeat("code ", 1000) + "\n```\n"
	for _, row := range []struct {
		name string
		n    int
		want string
	}{
		{"as many as all pages may have, beside code: no problem", maxWords, ""},
		{"one more: a problem", maxWords + 1, "all pages: 22001 words by hand, want at most 22000"},
	} {
		t.Run(row.name, func(t *testing.T) {
			pages := map[string]string{"README.md": strings.Repeat("word ", row.n-1) + "Name\n" + code}
			expect(t, checkPageList("README.md 99999 Name\n", pages, []string{"Name"}), row.want)
		})
	}
}

func TestCountWords_generated(t *testing.T) {
	for _, kind := range []string{"defaults", "example", "overview"} {
		if got := countWords("one two\n<!-- " + kind + ":begin x -->\n| a | b |\n<!-- " + kind + ":end -->\nthree"); got != 3 {
			t.Errorf("%s: got %d, want 3: what a test generates does not count", kind, got)
		}
	}
}

func TestCheckBlocks(t *testing.T) {
	code := map[string]string{"a_test.go": "func f() {\n\tx := 1\n\n\tif x > 0 {\n\t\tx = 2\n\t}\n}"}
	for _, row := range []struct{ name, block, want string }{
		{"indented in the code: found", "x := 1\n\nif x > 0 {\n\tx = 2\n}", ""},
		{"one line differs: a problem", "x := 1\n\nif x > 1 {\n\tx = 2\n}", "no test or example has this Go code"},
		{"lines are left out: a problem", "x := 1\nif x > 0 {", "no test or example has this Go code"},
		{"more lines than the code: a problem", strings.Repeat("x := 1\n", 20), "no test or example has this Go code"},
		{"a program outside of README: a problem", "package main", "no test or example has this Go code"},
	} {
		t.Run(row.name, func(t *testing.T) {
			expect(t, checkBlocks("docs/a.md", "```go\n"+row.block+"\n```\n", code), row.want)
		})
	}
}

func TestAnchors(t *testing.T) {
	got := anchors("# A page: with `Code`\n\n## What you see\n#no heading\n")
	if want := []string{"a-page-with-code", "what-you-see"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseWords(t *testing.T) {
	if got := parseWords("# words\nword\nin a way\n").FindAllString("Word, IN A WAY; words.", -1); len(got) != 2 {
		t.Errorf("got %q, want two words", got)
	}
}

func expect(t *testing.T, got []string, want string) {
	t.Helper()
	found := slices.ContainsFunc(got, func(problem string) bool { return strings.Contains(problem, want) })
	if found != (want != "") {
		t.Errorf("got %q, want %q", got, want)
	}
}
