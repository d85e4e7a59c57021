package main

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// pageList is the file with a line for each page: its name, the number of words that it had when it was last reviewed,
// and the exported names of the root package that it documents.
const pageList = ".ci/pages"

// unlimited stands for the number of words of a page that is not reviewed for its length.
const unlimited = "unlimited"

// documents checks README.md and docs/*.md: the links, the blocks of Go, and one page for each exported name of the root.
// It warns if a page has grown by more than a twentieth, and does not fail for that.
func documents([]string) error {
	pages, err := contents("README.md", "docs/*.md")
	if err != nil {
		return err
	}
	list, err := os.ReadFile(pageList)
	if err != nil {
		return err
	}
	names, err := exportedNames()
	if err != nil {
		return err
	}
	code, err := contents("*_test.go", "examples/*.go")
	if err != nil {
		return err
	}
	linking, err := contents("*.md", ":!*testdata/*")
	if err != nil {
		return err
	}
	wrong := checkPageList(string(list), pages, names)
	for name, page := range pages {
		wrong = append(wrong, checkBlocks(name, page, code)...)
	}
	for name, page := range linking {
		wrong = append(wrong, checkLinks(name, page)...)
	}
	slices.Sort(wrong)
	return problems("documents", wrong)
}

// checkPageList compares the list with the pages that exist and with the exported names.
func checkPageList(list string, pages map[string]string, names []string) (wrong []string) {
	home, listed, sum, inCode := map[string]string{}, map[string]bool{}, 0, 0
	for _, line := range lines(list) {
		fields := strings.Fields(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		page := fields[0]
		text, ok := pages[page]
		if !ok {
			wrong = append(wrong, page+" is missing")
		}
		listed[page] = true
		if fields[1] == unlimited {
			continue
		}
		before, err := strconv.Atoi(fields[1])
		if err != nil {
			return []string{pageList + ": " + err.Error()}
		}
		n := countWords(text)
		sum += n
		inCode += n - countWords(codeBlocks.ReplaceAllString(text, ""))
		if hasGrown(n, before) {
			warnf("%s: %d words, and %d when it was last reviewed", page, n, before)
		}
		for _, name := range fields[2:] {
			if home[name] != "" {
				wrong = append(wrong, fmt.Sprintf("%s: %s has two pages, %s and %s", pageList, name, home[name], page))
			}
			home[name] = page
			if !regexp.MustCompile(`\b` + name + `\b`).MatchString(text) {
				wrong = append(wrong, page+" does not document "+name)
			}
			if !slices.Contains(names, name) {
				wrong = append(wrong, pageList+": the root package has no "+name)
			}
		}
	}
	for page := range pages {
		if !listed[page] {
			wrong = append(wrong, pageList+": "+page+" is missing")
		}
	}
	for _, name := range names {
		if home[name] == "" {
			wrong = append(wrong, pageList+": no page for "+name)
		}
	}
	fmt.Printf("%d words by hand in README.md and docs/, and %d in code\n", sum-inCode, inCode)
	return wrong
}

// codeBlocks are copies of tests, diagrams and commands.
var codeBlocks = regexp.MustCompile("(?s)```.*?```")

var generated = regexp.MustCompile(`(?s)<!-- (?:defaults|example|overview):begin .*?<!-- (?:defaults|example|overview):end -->`)

// countWords counts the words that people have written. Tables and examples that a test or the fleet generates do not count.
func countWords(page string) int { return len(strings.Fields(generated.ReplaceAllString(page, ""))) }

// exportedNames returns the exported constants, variables, functions and types of the root package.
func exportedNames() (names []string, err error) {
	texts, err := contents(":(glob)*.go", ":!*_test.go")
	for _, text := range texts {
		top, _, err := namesOf(text)
		if err != nil {
			return nil, err
		}
		names = append(names, top...)
	}
	slices.Sort(names)
	return names, err
}

// checkBlocks finds blocks of Go that are no part of the code, which tests compile and run. The
// publish step runs the whole program of README.
func checkBlocks(name, page string, code map[string]string) (wrong []string) {
	for _, f := range fences(page) {
		if f.language != "go" || strings.HasPrefix(f.text, "package main") && name == "README.md" {
			continue
		}
		block := strings.Split(strings.TrimRight(f.text, "\n"), "\n")
		found := false
		for _, file := range code {
			found = found || strings.Contains(file, block[0]) && contains(strings.Split(file, "\n"), block)
		}
		if !found {
			wrong = append(wrong, fmt.Sprintf("%s:%d: no test or example has this Go code", name, f.line))
		}
	}
	return wrong
}

// contains reports whether the lines of block follow each other in file, all with the same
// indentation before them.
func contains(file, block []string) bool {
	for start := range len(file) - len(block) + 1 {
		indent, ok := strings.CutSuffix(file[start], block[0])
		if !ok || strings.TrimSpace(indent) != "" {
			continue
		}
		same := true
		for i, line := range block {
			same = same && (line == "" && file[start+i] == "" || file[start+i] == indent+line)
		}
		if same {
			return true
		}
	}
	return false
}

var (
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codeSpans = regexp.MustCompile("(?s)```.*?\n *```|`[^`\n]*`")
)

// checkLinks finds links to files and headings of the repository that do not exist.
func checkLinks(name, page string) (wrong []string) {
	for _, found := range link.FindAllStringSubmatch(codeSpans.ReplaceAllString(page, ""), -1) {
		target, anchor, _ := strings.Cut(found[1], "#")
		if strings.Contains(target, ":") {
			continue // another site
		}
		file := name
		if target != "" {
			file = path.Join(path.Dir(name), target)
		}
		_, err := os.Stat(file)
		content, _ := os.ReadFile(file) // a folder has no anchors
		if err != nil || anchor != "" && !slices.Contains(anchors(string(content)), anchor) {
			wrong = append(wrong, fmt.Sprintf("%s: the link %s has no target", name, found[1]))
		}
	}
	return wrong
}

// anchors returns the anchors of a document's headings, as GitHub makes them.
func anchors(document string) (all []string) {
	unwanted := regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
	for _, line := range lines(document) {
		if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
			text := unwanted.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			all = append(all, strings.ReplaceAll(text, " ", "-"))
		}
	}
	return all
}
