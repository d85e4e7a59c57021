package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// wordList is the file with the words to avoid, one a line.
const wordList = ".ci/words"

// words finds the words of wordList in all text of the repository, in any case.
func words([]string) error {
	list, err := os.ReadFile(wordList)
	if err != nil {
		return err
	}
	pattern := parseWords(string(list))
	// Licences, generated results and inputs of fuzz targets are not ours to write. One file names a user of the system.
	files, err := contents(".", ":!LICENSE", ":!go.sum", ":!*/go.sum", ":!*testdata/*", ":!benchmarks/results", ":!"+wordList, ":!*/user_unix.go")
	if err != nil {
		return err
	}
	var found []string
	for name, text := range files {
		for i, line := range strings.Split(text, "\n") {
			for _, word := range pattern.FindAllString(line, -1) {
				if word != "NoBody" { // a name of net/http
					found = append(found, fmt.Sprintf("%s:%d: %s", name, i+1, word))
				}
			}
		}
	}
	slices.Sort(found)
	return problems("words to avoid", found)
}

// parseWords returns a pattern for the words of a list.
func parseWords(list string) *regexp.Regexp {
	all := slices.DeleteFunc(lines(list), func(line string) bool { return strings.HasPrefix(line, "#") })
	return regexp.MustCompile(`(?i)\b(` + strings.Join(all, "|") + `)\b`)
}
