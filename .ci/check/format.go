package main

import "strings"

// picture is the one binary file: a screenshot of the lab for docs/performance.md.
const picture = "docs/lab.png"

// format checks gofmt -s, and that no binary file was added by mistake.
func format([]string) error {
	listed, err := output(".", nil, "git", "ls-files", "--eol")
	if err != nil {
		return err
	}
	var wrong []string
	for _, line := range lines(listed) {
		_, name, _ := strings.Cut(line, "\t")
		if strings.HasPrefix(line, "i/-text") && name != picture {
			wrong = append(wrong, "not text: "+name)
		}
	}
	files, err := tracked("*.go")
	if err != nil {
		return err
	}
	unformatted, err := output(".", nil, "gofmt", append([]string{"-s", "-l"}, files...)...)
	if err != nil {
		return err
	}
	for _, name := range lines(unformatted) {
		wrong = append(wrong, "not formatted by gofmt -s: "+name)
	}
	return problems("format", wrong)
}
