package report

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrite(t *testing.T) {
	docs := filepath.Join(t.TempDir(), "docs")
	require.NoError(t, Write(docs, "a", "one\n"))
	require.NoError(t, Write(docs, "b", "two"))
	require.NoError(t, Write(docs, "a", "three"))
	text, err := os.ReadFile(filepath.Join(docs, page))
	require.NoError(t, err)
	require.Equal(t, "<!-- a:begin -->\nthree\n<!-- a:end -->\n\n<!-- b:begin -->\ntwo\n<!-- b:end -->\n", string(text))
}

func TestReplaced(t *testing.T) {
	text, err := replaced("before\n<!-- a:begin -->\nold\n<!-- a:end -->\nafter\n", "a", "new")
	require.NoError(t, err)
	require.Equal(t, "before\n<!-- a:begin -->\nnew\n<!-- a:end -->\nafter\n", text, "what others have written stays")
	for _, broken := range []string{"<!-- a:begin -->", "<!-- a:end -->", "<!-- a:end --><!-- a:begin -->"} {
		_, err := replaced(broken, "a", "new")
		require.Error(t, err)
	}
}

func TestTable(t *testing.T) {
	table := NewTable("who", "how much")
	table.Row("we", "1")
	require.Equal(t, "| who | how much |\n|---|--:|\n| we | 1 |\n", table.String())
	require.Equal(t, "| who | what |\n|---|---|\n", NewTextTable("who", "what").String())
}

func TestDocs(t *testing.T) {
	docs, err := Docs()
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(docs, "..", "benchmarks", "go.mod"))
	t.Chdir(t.TempDir())
	_, err = Docs()
	require.Error(t, err)
}

func TestRows(t *testing.T) {
	docs := t.TempDir()
	table := NewTable("who", "how much")
	table.Row("we", "1.00 ± 0.10")
	table.Row("**they**", "2")
	require.NoError(t, Write(docs, "a", "text\n\n"+table.String()+"\n| no table |\n"))
	rows, err := Rows(docs, "who")
	require.NoError(t, err)
	require.Equal(t, [][]string{{"we", "1.00 ± 0.10"}, {"**they**", "2"}}, rows)
	_, err = Rows(docs, "whose")
	require.ErrorContains(t, err, "whose")
	_, err = Rows(t.TempDir(), "who")
	require.Error(t, err)
}
