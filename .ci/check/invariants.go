package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// promisePage has an item for each promise: "- **§4.1** A sentence.", and the tests that hold it.
const promisePage = "docs/maintainers/invariants.md"

var (
	promiseItem = regexp.MustCompile(`^- \*\*(\S+)\*\* `)
	testOnPage  = regexp.MustCompile("`(?:([\\w/]+)\\.)?((?:Test|Fuzz)\\w*)`")
	testInFile  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`)

	// comment is not a part of a URL.
	comment    = regexp.MustCompile(`(?:^|\s)//.*`)
	section    = regexp.MustCompile(`§\d+(?:\.\d+[a-z]?)?`)
	letter     = regexp.MustCompile(`\b[A-Z]\d{1,2}\b`)
	rowsLetter = regexp.MustCompile(`"([A-Z]\d{1,2}): `)
)

// promise is an item of the page.
type promise struct {
	number string
	tests  []string // as folder.Name, or Name in the root
}

// invariants compares the promises with the tests, and with the suites that tests of several stores share.
func invariants([]string) error {
	page, err := contents(promisePage)
	if err != nil {
		return err
	}
	tests, err := contents("*_test.go", "*storetest/*.go", ":!.ci")
	if err != nil {
		return err
	}
	return problems("invariants", checkPromises(page[promisePage], tests))
}

// checkPromises returns the numbers without a test, the labels without a number, and the tests that do not exist.
func checkPromises(page string, tests map[string]string) (wrong []string) {
	exists, places := map[string]bool{}, map[string][]string{}
	for name, text := range tests {
		for _, found := range testInFile.FindAllStringSubmatch(text, -1) {
			exists[qualified(path.Dir(name), found[1])] = true
		}
		for i, line := range strings.Split(text, "\n") {
			for _, label := range labelsOf(line) {
				places[label] = append(places[label], fmt.Sprintf("%s:%d", name, i+1))
			}
		}
	}
	known := map[string]bool{}
	for _, p := range promises(page) {
		if known[p.number] {
			wrong = append(wrong, fmt.Sprintf("%s has %s twice", promisePage, p.number))
		}
		known[p.number] = true
		if places[p.number] == nil {
			wrong = append(wrong, fmt.Sprintf("no comment of a test names %s", p.number))
		}
		if len(p.tests) == 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %s has no test", promisePage, p.number))
		}
		for _, test := range p.tests {
			if !exists[test] {
				wrong = append(wrong, fmt.Sprintf("%s: %s: there is no test %s", promisePage, p.number, test))
			}
		}
	}
	for label, named := range places {
		if !known[label] {
			wrong = append(wrong, fmt.Sprintf("%s: %s is not in %s", strings.Join(named, ", "), label, promisePage))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// promises returns the items of the page. An item ends at the next one or at a heading.
func promises(page string) (all []promise) {
	inItem := false
	for line := range strings.SplitSeq(page, "\n") {
		if found := promiseItem.FindStringSubmatch(line); found != nil {
			all, inItem = append(all, promise{number: found[1]}), true
		} else if strings.HasPrefix(line, "#") {
			inItem = false
		}
		if !inItem {
			continue
		}
		last := &all[len(all)-1]
		for _, found := range testOnPage.FindAllStringSubmatch(line, -1) {
			last.tests = append(last.tests, qualified(found[1], found[2]))
		}
	}
	return all
}

// qualified returns the name of a test with its folder, which the root does not have.
func qualified(folder, test string) string {
	return strings.TrimLeft(folder+"."+test, ".")
}

// labelsOf returns the numbers that a line of a test names: § and digits anywhere, a capital letter and digits in a
// comment or at the beginning of a row's name.
func labelsOf(line string) []string {
	labels := append(section.FindAllString(line, -1), letter.FindAllString(comment.FindString(line), -1)...)
	for _, found := range rowsLetter.FindAllStringSubmatch(line, -1) {
		labels = append(labels, found[1])
	}
	return labels
}
