package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	const passes, fails, skips = `{"Action":"pass","Package":"p","Test":"A"}`, `{"Action":"fail","Package":"p","Test":"A"}`, `{"Action":"skip","Package":"p","Test":"A"}`
	for _, row := range []struct {
		name  string
		runs  []string
		says  string
		error string
	}{
		{"passes", []string{passes, passes}, "1 passed, 0 failed", ""},
		{"fails in one", []string{passes, fails}, "0 passed, 1 failed", "tests failed"},
		{"skipped in one", []string{skips, passes}, "1 passed, 0 failed", ""},
		{"skipped in all", []string{skips, skips}, "skipped in every run: p A", "skipped"},
		{"does not build", []string{passes, `{"Action":"fail","Package":"q"}`}, "failed: q", "tests failed"},
		{"nothing ran", []string{""}, "0 passed", "no test ran"},
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
			err := judge(files, &out)
			if !strings.Contains(out.String(), row.says) || (err == nil) != (row.error == "") || err != nil && !strings.Contains(err.Error(), row.error) {
				t.Errorf("%s%v", out.String(), err)
			}
		})
	}
}

func TestCovered(t *testing.T) {
	percent, missed, err := covered("mode: set\nx/a.go:1.1,2.2 3 1\nx/a.go:3.1,4.2 1 0\nx/b.go:1.1,2.2 4 0\n")
	if err != nil || percent != 37.5 || missed["a.go"] != 1 || missed["b.go"] != 4 {
		t.Error(percent, missed, err)
	}
	for _, profile := range []string{"mode: set\n", "mode: set\nx/a.go:1.1 3\n", "mode: set\nx/a.go:1.1,2.2 x 1\n"} {
		if _, _, err := covered(profile); err == nil {
			t.Errorf("%q: no error", profile)
		}
	}
}
