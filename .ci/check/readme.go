package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// fence is a fenced block of a document.
type fence struct {
	language string
	text     string
	line     int // of its first line of text, from 1
}

// fences are the blocks of a document in Markdown.
func fences(document string) (all []fence) {
	open := false
	for i, line := range strings.Split(document, "\n") {
		mark, isMark := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isMark && open:
			open = false
		case isMark:
			open = true
			all = append(all, fence{language: mark, line: i + 2})
		case open:
			all[len(all)-1].text += line + "\n"
		}
	}
	return all
}

// readmeCommand prints the command "go run …" or "go test …" of README.md's block that holds these two and nothing else.
func readmeCommand(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: check readme run|test")
	}
	document, err := os.ReadFile("README.md")
	if err != nil {
		return err
	}
	command, ok := commandOf(string(document), args[0])
	if !ok {
		return errors.New("README.md has no fenced block with the two commands, go run … and go test …")
	}
	fmt.Println(command)
	return nil
}

func commandOf(document, verb string) (string, bool) {
	comment := regexp.MustCompile(`(^|\s)#.*$`)
	for _, f := range fences(document) {
		found := map[string]string{}
		n := 0
		for _, line := range lines(f.text) {
			line = strings.TrimSpace(comment.ReplaceAllString(strings.TrimPrefix(strings.TrimSpace(line), "$ "), ""))
			if line == "" {
				continue
			}
			n++
			if words := strings.Fields(line); len(words) > 1 && words[0] == "go" {
				found[words[1]] = line
			}
		}
		if n == 2 && found["run"] != "" && found["test"] != "" {
			command, ok := found[verb]
			return command, ok
		}
	}
	return "", false
}

// snippets is where the frames stand: programs around README's Go, each with a line in which the text of a block is to stand,
//
//	//README client := &http.Client{Transport: &resilienthttp.Transport{}}
//
// which names the block by its first line. They are tests of a stranger's module, so that they are run as well as compiled.
const snippets = ".ci/check/snippets"

// readme follows README as a stranger would: each `go get` names what can be got, and each block of Go is built and run.
func (r *madeUp) readme() error {
	document, err := os.ReadFile("README.md")
	if err != nil {
		return err
	}
	dir := filepath.Join(r.dir, "readme")
	if err := errors.Join(r.stranger(dir), frameAll(string(document), os.DirFS(snippets), dir)); err != nil {
		return err
	}
	var get []string
	for _, m := range r.modules {
		get = append(get, m+"@"+r.version)
	}
	for _, found := range regexp.MustCompile("go get ([^\\s`]+)").FindAllStringSubmatch(string(document), -1) {
		if strings.HasPrefix(found[1], home) {
			get = append(get, found[1]+"@"+r.version)
		}
	}
	if _, err := output(dir, r.env, "go", append([]string{"get"}, get...)...); err != nil {
		return fmt.Errorf("README's go get: %w", err)
	}
	if _, err := output(dir, r.env, "go", "test", "-count=1", "./..."); err != nil {
		return fmt.Errorf("README's Go: %w", err)
	}
	fmt.Println("README's Go is built and run")
	return nil
}

// frameAll writes each frame with its block into a package of its own below dir. A block without a frame is an error, as is a
// frame without a block.
func frameAll(document string, frames fs.FS, dir string) error {
	names, err := fs.Glob(frames, "*.go.txt")
	if err != nil {
		return err
	}
	var wrong []string
	framed := map[string]string{} // by the first line of the block
	for _, name := range names {
		content, err := fs.ReadFile(frames, name)
		if err != nil {
			return err
		}
		found := regexp.MustCompile(`(?m)^\s*//README (.*)$`).FindStringSubmatch(string(content))
		if found == nil {
			wrong = append(wrong, path.Join(snippets, name)+" has no line //README")
			continue
		}
		framed[strings.TrimSpace(found[1])] = name
	}
	for _, f := range fences(document) {
		if f.language != "go" {
			continue
		}
		first := strings.TrimSpace(strings.SplitN(f.text, "\n", 2)[0])
		name, ok := framed[first]
		if !ok {
			wrong = append(wrong, fmt.Sprintf("README.md:%d: no frame for the block that begins %q", f.line, first))
			continue
		}
		delete(framed, first)
		content, err := fs.ReadFile(frames, name)
		if err != nil {
			return err
		}
		place := strings.TrimSuffix(name, ".go.txt")
		filled := strings.Replace(string(content), "//README "+first, f.text, 1)
		if err := writeFile(dir, path.Join(place, place+"_test.go"), []byte(filled)); err != nil {
			return err
		}
	}
	for first, name := range framed {
		wrong = append(wrong, fmt.Sprintf("%s: README.md has no block that begins %q", path.Join(snippets, name), first))
	}
	return problems("README's Go", wrong)
}
