package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
)

// fence is a fenced block of a document.
type fence struct {
	language string
	text     string
	line     int // of its first line of text, from 1
}

// fences returns the fenced blocks of a document in Markdown.
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

// readme follows README as a new user does: each `go get` names a module that exists, and the first
// program is built and gets a response after a retry.
func (r *madeUp) readme() error {
	document, err := os.ReadFile("README.md")
	if err != nil {
		return err
	}
	program, ok := programOf(string(document))
	if !ok {
		return errors.New("README.md has no block of Go that is a program")
	}
	dir := filepath.Join(r.dir, "readme")
	if err := errors.Join(r.stranger(dir), writeFile(dir, "main.go", []byte(program))); err != nil {
		return err
	}
	get := []string{"get"}
	for _, found := range regexp.MustCompile("go get ([^\\s`]+)").FindAllStringSubmatch(string(document), -1) {
		if strings.HasPrefix(found[1], home) {
			get = append(get, found[1]+"@"+r.version)
		}
	}
	if _, err := output(dir, r.env, "go", get...); err != nil {
		return fmt.Errorf("README's go get: %w", err)
	}
	var requests atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer api.Close()
	printed, err := output(dir, r.env, "go", "run", ".", api.URL)
	if err != nil {
		return fmt.Errorf("README's program: %w", err)
	}
	if requests.Load() != 2 || !strings.Contains(printed, "200 OK") {
		return fmt.Errorf("README's program: %d requests, want 2; it printed %q, want 200 OK", requests.Load(), printed)
	}
	fmt.Println("README's program is built and run")
	return nil
}

// programOf returns the first block of Go that is a whole program.
func programOf(document string) (string, bool) {
	for _, f := range fences(document) {
		if f.language == "go" && strings.HasPrefix(f.text, "package main\n") {
			return f.text, true
		}
	}
	return "", false
}
