package docs_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// TestErrorsPage requires an entry in docs/errors.md for each exported error of the
// repository. An error of a driver package may stand there under the name of its alias.
func TestErrorsPage(t *testing.T) {
	page, err := os.ReadFile("errors.md")
	require.NoError(t, err)
	found := 0
	for file, names := range exportedErrors(t) {
		dir := filepath.Dir(file)
		for _, name := range names {
			found++
			entries := []string{"`" + filepath.Base(dir) + "." + name + "`"}
			if dir == "." {
				entries = []string{"| `" + name + "` |"}
			}
			has := false
			for _, entry := range entries {
				has = has || strings.Contains(string(page), entry)
			}
			if !has {
				t.Errorf("%s declares %s: got no entry in docs/errors.md, want one of %v", file, name, entries)
			}
		}
	}
	require.Greater(t, found, 11, "errors of the root and of other packages")
}

// exportedErrors returns the names of the exported errors that the files of this repository
// declare, by file.
func exportedErrors(t *testing.T) map[string][]string {
	t.Helper()
	declaration := regexp.MustCompile(`(?m)^(?:\t|var )(Err[A-Z]\w*) += `)
	repository := os.DirFS("..")
	names := map[string][]string{}
	require.NoError(t, fs.WalkDir(repository, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains([]string{"internal", "examples", "benchmarks", "crashtest"}, entry.Name()) || len(path) > 1 && strings.HasPrefix(path, ".")):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		content, err := fs.ReadFile(repository, path)
		for _, match := range declaration.FindAllStringSubmatch(string(content), -1) {
			names[path] = append(names[path], match[1])
		}
		return err
	}))
	return names
}

// statusOrError is a Base that returns a response with the status, or the error if that is set.
type statusOrError struct {
	status int
	err    error
}

func (s *statusOrError) RoundTrip(*http.Request) (*http.Response, error) {
	if s.err != nil {
		return nil, s.err
	}
	return &http.Response{StatusCode: s.status, Header: http.Header{}, Body: http.NoBody}, nil
}

// TestBackoffPage tries each row of the table "Costs in seconds" of docs/backoff.md.
func TestBackoffPage(t *testing.T) {
	page, err := os.ReadFile("backoff.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "## Costs in seconds\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 4 || cells[0] == "failure" {
			continue
		}
		rows++
		t.Run(cells[0]+", deadline "+cells[1], func(t *testing.T) {
			tries := costCases(cells[0])
			require.NotEmpty(t, tries)
			for _, try := range tries {
				for range 20 { // the waits are random
					synctest.Test(t, func(t *testing.T) { tryCost(t, try, cells) })
				}
			}
		})
	}
	require.Equal(t, 7, rows)
}

// costCase is a server that fails, and the status of a call before it, or 0.
type costCase struct {
	server statusOrError
	before int
}

// costCases returns the cases of a cell of the column "failure".
func costCases(failure string) []costCase {
	switch failure {
	case "500 or connection reset":
		return []costCase{{server: statusOrError{status: 500}}, {server: statusOrError{err: syscall.ECONNRESET}}}
	case "503, 529, 429 or connection refused":
		return []costCase{
			{server: statusOrError{status: 503}}, {server: statusOrError{status: 529}}, {server: statusOrError{status: 429}},
			{server: statusOrError{err: syscall.ECONNREFUSED}},
		}
	case "timeout":
		return []costCase{{server: statusOrError{err: os.ErrDeadlineExceeded}}}
	case "timeout, server healthy, few calls":
		return []costCase{{server: statusOrError{err: os.ErrDeadlineExceeded}, before: 200}}
	case "500 while the route only fails":
		return []costCase{{server: statusOrError{status: 500}, before: 500}}
	}
	return nil
}

// tryCost makes the call of one row. The cells are failure, deadline, attempts, and "8–10 s".
func tryCost(t *testing.T, try costCase, cells []string) {
	t.Helper()
	base := try.server
	transport := &resilienthttp.Transport{Base: &base}
	if try.before != 0 {
		base = statusOrError{status: try.before}
		_, _ = costOf(t, transport, "none")
		base = try.server
	}
	attempts, took := costOf(t, transport, cells[1])
	inRange(t, cells[2], float64(attempts), "attempts")
	inRange(t, strings.TrimSuffix(cells[3], " s"), took.Seconds(), "seconds")
}

// inRange requires that a number is in the range of a cell: "5", or "5–6".
func inRange(t *testing.T, cell string, got float64, of string) {
	t.Helper()
	low, high, isRange := strings.Cut(cell, "–")
	if !isRange {
		high = low
	}
	lowest, err := strconv.ParseFloat(low, 64)
	require.NoError(t, err)
	highest, err := strconv.ParseFloat(high, 64)
	require.NoError(t, err)
	require.GreaterOrEqual(t, got, lowest, of)
	require.LessOrEqual(t, got, highest, of)
}

// costOf makes a call that has so long, or "none" for no deadline.
func costOf(t *testing.T, transport *resilienthttp.Transport, deadline string) (attempts int, took time.Duration) {
	t.Helper()
	ctx := t.Context()
	if deadline != "none" {
		limit, err := time.ParseDuration(strings.ReplaceAll(deadline, " ", ""))
		require.NoError(t, err)
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", http.NoBody)
	require.NoError(t, err)
	begin := time.Now()
	resp, err := transport.RoundTrip(req)
	took = time.Since(begin)
	if failed, ok := errors.AsType[*resilienthttp.Error](err); ok {
		return len(failed.Attempts), took
	}
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return len(resilienthttp.Attempts(resp)), took
}
