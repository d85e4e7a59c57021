package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// wordList is the file with the words to avoid, one a line, and the number of their uses that
// remain in the repository. That number may only fall.
const wordList = ".ci/words"

// maxShown is the number of words that an error shows.
const maxShown = 100

// words counts the words of wordList in all text of the repository, in any case. It fails if
// the number differs from the one in wordList: a lower number must be written there.
func words([]string) error {
	content, err := os.ReadFile(wordList)
	if err != nil {
		return err
	}
	pattern, limit, err := parseWords(string(content))
	if err != nil {
		return fmt.Errorf("%s: %w", wordList, err)
	}
	// Licences, generated results and inputs of fuzz targets are not ours to write.
	files, err := contents(".", ":!LICENSE", ":!go.sum", ":!*/go.sum", ":!*testdata/*", ":!benchmarks/results", ":!"+wordList)
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
	switch {
	case len(found) > limit:
		return problems(fmt.Sprintf("words to avoid: %d, want at most %d; the first", len(found), limit), found[:min(len(found), maxShown)])
	case len(found) < limit:
		return fmt.Errorf("%s: the number of words is %d now: write it instead of %d", wordList, len(found), limit)
	}
	fmt.Println(len(found), "words to avoid remain")
	return nil
}

// parseWords returns a pattern for the words of a list, and the number in its line "limit N".
func parseWords(list string) (*regexp.Regexp, int, error) {
	var all []string
	limit := -1
	for _, line := range lines(list) {
		number, isLimit := strings.CutPrefix(line, "limit ")
		switch {
		case strings.HasPrefix(line, "#"):
		case isLimit:
			n, err := strconv.Atoi(number)
			if err != nil {
				return nil, 0, err
			}
			limit = n
		default:
			all = append(all, regexp.QuoteMeta(line))
		}
	}
	if limit < 0 || len(all) == 0 {
		return nil, 0, errors.New("no line \"limit N\", or no word")
	}
	return regexp.MustCompile(`(?i)\b(` + strings.Join(all, "|") + `)\b`), limit, nil
}
