package main

import (
	"encoding/json"
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

const single, unit = 3, time.Second

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
	require.Equal(t, []string{"single = 3", "unit = time.Second", "first = 2 * time.Second", "second = other / 2"}, found)
}

func TestFailing(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("go.mod", "module a\n\ngo 1.26\n")
	source := write("a.go", "package a\n\nconst two = 2\n")
	write("a_test.go", "package a\n\nimport \"testing\"\n\nfunc TestTwo(t *testing.T) {\n\tif two != 2 {\n\t\tt.Fail()\n\t}\n}\n")
	changed := write("changed", "package a\n\nconst two = (2) * 2\n")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
	require.NoError(t, err)
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
	require.Empty(t, failing(write("none.json", "{}"), "."))
	require.Equal(t, []string{"TestTwo"}, failing(write("overlay.json", string(overlay)), "."))
}
