package faulttest

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// QuotaKeys returns the number of keys in q's memory.
func QuotaKeys(q *Quota) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.usage)
}

// LogMemory returns the numbers of requests and connections in l's memory.
func LogMemory(l *Log) (requests, conns int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.kept), len(l.conns)
}

// ServerLog returns the destination of net/http's log.
func ServerLog(s *Server) io.Writer { return s.server.Config.ErrorLog.Writer() }

// FailedRows runs the rows of TestTransport without failing t, and returns the failures by row.
func FailedRows(t *testing.T, wrap func(base http.RoundTripper) http.RoundTripper, options ...TestOption) map[string][]string {
	t.Helper()
	set, err := settingsOf(options)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(map[string][]string)
	for _, r := range set.rows() {
		if failures := r.try(t, wrap, set); len(failures) > 0 {
			failed[r.name] = append(failures, r.report(failures))
		}
	}
	return failed
}

// RowNames returns the names of the rows of TestTransport in their order.
func RowNames() (names []string) {
	for _, r := range allRows() {
		names = append(names, r.name)
	}
	return names
}

// RowsWithoutReason returns the rows of TestTransport that have no sentence why they exist, or no source.
func RowsWithoutReason() (names []string) {
	for _, r := range allRows() {
		if !strings.HasSuffix(r.why, ".") || r.source == "" {
			names = append(names, r.name)
		}
	}
	return names
}
