package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// law is a numbered list of invariants. A test must name each number, in a comment or in its own name. below are the
// directories of these tests, because a letter has another meaning elsewhere; "" means all.
type law struct {
	of     string
	prefix string
	first  int
	last   int
	below  []string
}

// laws returns the lists. Tests name a number as "// A1: …", in TestA1…, or as "A1: …" in a row's name.
func laws() []law {
	return []law{
		{"the Transport", "§4.", 1, 25, []string{""}},
		{"durable", "D", 1, 24, []string{"durable"}},
		{"admission", "A", 1, 16, []string{"admission", "quotastore"}},
		{"telemetry", "T", 1, 15, []string{""}},
		{"the adaptive timeout", "X", 1, 6, []string{""}},
		{"vendors", "V", 1, 4, []string{""}},
		{"conditional", "U", 1, 4, []string{"conditional"}},
	}
}

func invariants([]string) error {
	tests, err := contents("*_test.go")
	if err != nil {
		return err
	}
	var missing []string
	for _, l := range laws() {
		missing = append(missing, l.unnamed(tests)...)
	}
	return problems("no test names", missing)
}

// unnamed returns the numbers of the list that no test names.
func (l law) unnamed(tests map[string]string) (missing []string) {
	var text strings.Builder
	for name, content := range tests {
		if slices.ContainsFunc(l.below, func(dir string) bool { return dir == "" || strings.HasPrefix(name, dir+"/") }) {
			text.WriteString(content)
		}
	}
	for n := l.first; n <= l.last; n++ {
		if !regexp.MustCompile(l.pattern(n)).MatchString(text.String()) {
			missing = append(missing, fmt.Sprintf("%s%d of %s", l.prefix, n, l.of))
		}
	}
	return missing
}

// pattern matches the number in a comment, alone or in a list, and in the name of a test or row.
func (l law) pattern(n int) string {
	named := fmt.Sprintf(`%s%d`, regexp.QuoteMeta(l.prefix), n)
	if strings.HasPrefix(l.prefix, "§") {
		return named + `(\D|$)`
	}
	return fmt.Sprintf(`(?m)//.*\b%s\b|^func Test%s(\D|$)|"%s: `, named, named, named)
}
