package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConstants(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("a.go", `package a

const single = 3

const (
	first, second = 2 * time.Second, other / 2
	text          = "5"
	letter        = 'a'
	copied        = single
	one           = iota + 1
)

var variable = 7
`)
	write("a_test.go", "package a\n\nconst tested = 9\n")
	list, err := constants(dir)
	require.NoError(t, err)
	var found []string
	for _, c := range list {
		text, err := os.ReadFile(c.file)
		require.NoError(t, err)
		require.Equal(t, c.text, string(text[c.from:c.to]), c.name)
		found = append(found, c.name+" = "+c.text)
	}
	require.Equal(t, []string{"single = 3", "first = 2 * time.Second", "second = other / 2"}, found)
}
