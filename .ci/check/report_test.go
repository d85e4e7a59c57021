package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	const passes, fails, skips = `{"Action":"pass","Package":"p","Test":"A"}`, `{"Action":"fail","Package":"p","Test":"A"}`, `{"Action":"skip","Package":"p","Test":"A"}`
	const rows = `{"Action":"pass","Package":"p/q","Test":"A/row_1"}` + "\n" + `{"Action":"pass","Package":"p/q","Test":"A_b"}`
	for _, row := range []struct {
		name  string
		runs  []string
		skips []string
		says  string
		error string
	}{
		{"passes: counted once", []string{passes, passes}, nil, "1 passed, 0 failed", ""},
		{"fails in one run: failed", []string{passes, fails}, nil, "0 passed, 1 failed", "tests failed"},
		{"skipped in one run: passed", []string{skips, passes}, nil, "1 passed, 0 failed", ""},
		{"skipped in all runs: an error", []string{skips, skips}, nil, "skipped in every run: p A", "skipped"},
		{"does not build: failed", []string{passes, `{"Action":"fail","Package":"q"}`}, nil, "failed: q", "tests failed"},
		{"patterns name tests: passed", []string{passes, rows}, []string{"^(A|A_b)$", "^A$/^row"}, "3 passed", ""},
		{"a pattern names no test: an error", []string{passes}, []string{"^(A|B)$"}, "1 passed", "^B$ in ^(A|B)$"},
		{"a pattern names no row: an error", []string{passes}, []string{"^A$/row"}, "1 passed", "^A$/row"},
		{"no test ran: an error", []string{""}, nil, "0 passed", "no test ran"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var files []string
			for i, run := range row.runs {
				files = append(files, filepath.Join(t.TempDir(), string(rune('a'+i))))
				if err := os.WriteFile(files[i], []byte(run+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			err := judge(files, row.skips, &out)
			if !strings.Contains(out.String(), row.says) || (err == nil) != (row.error == "") || err != nil && !strings.Contains(err.Error(), row.error) {
				t.Errorf("got %s%v, want %q and %q", out.String(), err, row.says, row.error)
			}
		})
	}
}
