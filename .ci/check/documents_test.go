package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
		{"one more: a problem", maxWords + 1, "all pages: 22401 words by hand, want at most 22400"},
	} {
		t.Run(row.name, func(t *testing.T) {
			pages := map[string]string{"README.md": strings.Repeat("word ", row.n-1) + "Name\n" + code}
			expect(t, checkPageList("README.md 99999 Name\n", pages, []string{"Name"}), row.want)
		})
	}
}

func TestCountWords_generated(t *testing.T) {
	for _, kind := range []string{"defaults", "example", "overview"} {
		text := "one two\n<!-- " + kind + ":begin x -->\n| a | b |\n<!-- " + kind + ":end -->\nthree"
		require.Equal(t, 3, countWords(text), "what a test generates does not count: %s", kind)
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
	require.Equal(t, []string{"a-page-with-code", "what-you-see"}, anchors("# A page: with `Code`\n\n## What you see\n#no heading\n"))
}

func TestParseWords(t *testing.T) {
	require.Equal(t, []string{"Word", "IN A WAY"}, parseWords("# words\nword\nin a way\n").FindAllString("Word, IN A WAY; words.", -1))
}

func expect(t *testing.T, got []string, want string) {
	t.Helper()
	found := slices.ContainsFunc(got, func(problem string) bool { return strings.Contains(problem, want) })
	require.Equal(t, want != "", found, "got %q, want %q", got, want)
}

func TestProgramOf(t *testing.T) {
	const program = "package main\n\nfunc main() {}\n"
	got, ok := programOf("```go\nx := 1\n```\n\n```go\n" + program + "```\n")
	require.True(t, ok)
	require.Equal(t, program, got, "not the part")
	_, ok = programOf("```go\nx := 1\n```\n")
	require.False(t, ok, "parts alone")
}

func TestCheckPromises(t *testing.T) {
	const page = "# Invariants\n\nAbout `TestOther`.\n\n## Transport\n\n" +
		"- **§4.1** A sentence.\n  Tests: `TestA`,\n  `durable/internal/driver.TestB`.\n- **D2** Another. Tests: `durable.FuzzC`.\n\n## End\n\nSee `TestOther`.\n"
	const a = "// §4.1: as promised.\nfunc TestA(t *testing.T) {}\n"
	for _, row := range []struct {
		name, page, test, want string
	}{
		{"all right: no problem", page, a, ""},
		{"a number that no test names: a problem", page + "- **D3** New. `TestA`.\n", a, "no comment of a test names D3"},
		{"a number is not its beginning", page + "- **§4.2** New. `TestA`.\n", a + "// §4.22\n", "no comment of a test names §4.2"},
		{"a number in code only: a problem", page + "- **D5** New. `TestA`.\n", a + "func TestD5() { x(D5) }\n", "names D5"},
		{"a label that is not on the page: a problem", page, a + "// D1, D9: as promised.\n", "a_test.go:3: D1 is not in docs/maintainers/invariants.md"},
		{"the second of two labels: a problem", page, a + "// D2, D9: as promised.\n", "D9 is not in"},
		{"a label of an unknown letter: a problem", page, a + "x() // N1\n", "N1 is not in"},
		{"a label of a row: a problem", page, a + "{\"D8: a row\"},\n", "D8 is not in"},
		{"a section that is not on the page: a problem", page, a + "t.Run(\"§7 row\")\n", "§7 is not in"},
		{"letters in a URL and in code: no labels", page, a + "u := \"http://h/T0/B0\" + P50\n", ""},
		{"a test that does not exist: a problem", page + "- **D2** Again. `TestB`.\n", a, "D2: there is no test TestB"},
		{"a test of another folder: a problem", page + "- **D2** Again. `durable.TestA`.\n", a, "there is no test durable.TestA"},
		{"a method is no test: a problem", page + "- **D2** Again. `TestB`.\n", a + "func (x T) TestB() {}\n", "there is no test TestB"},
		{"an item without a test: a problem", page + "- **D2** Again.\n", a, "D2 has no test"},
		{"a number twice: a problem", page + "- **D2** Again. `TestA`.\n", a, "has D2 twice"},
	} {
		t.Run(row.name, func(t *testing.T) {
			expect(t, checkPromises(row.page, map[string]string{
				"a_test.go": row.test, "durable/c_test.go": "// D2\nfunc FuzzC(f *testing.F) {}\n",
				"durable/internal/driver/b_test.go": "func TestB(t *testing.T) {}\n",
			}), row.want)
		})
	}
}
