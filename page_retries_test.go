package resilienthttp_test

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// TestRetriesPage tries each row of the table of status codes in docs/retries.md.
func TestRetriesPage(t *testing.T) {
	page, err := os.ReadFile("docs/retries.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "## Status codes\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	tried := map[int]int{}
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(line, " | ")
		if len(cells) != 6 || strings.HasPrefix(line, "| status") {
			continue
		}
		asks := map[string][]bool{"–": {false, true}, "no": {false}, "yes": {true}}[cells[1]]
		require.NotEmpty(t, asks, line)
		for _, status := range statusesOf(t, strings.TrimPrefix(cells[0], "| ")) {
			for _, ask := range asks {
				tried[status]++
				tryStatus(t, status, ask, cells[2], cells[3] == "retried", cells[4] == "retried")
			}
		}
	}
	for status := 100; status <= 999; status++ {
		require.Equal(t, 2, tried[status], "%d with and without a wait", status)
	}
}

// statusesOf returns the statuses of a list such as "500, 502–504".
func statusesOf(t *testing.T, cell string) (statuses []int) {
	t.Helper()
	for part := range strings.SplitSeq(cell, ", ") {
		first, last, ranged := strings.Cut(part, "–")
		if !ranged {
			last = first
		}
		from, err := strconv.Atoi(first)
		require.NoError(t, err, cell)
		to, err := strconv.Atoi(last)
		require.NoError(t, err, cell)
		for status := from; status <= to; status++ {
			statuses = append(statuses, status)
		}
	}
	return statuses
}

func tryStatus(t *testing.T, status int, ask bool, verdict string, keyed, unkeyed bool) {
	t.Helper()
	base := puppetStatus(status)
	if ask {
		base = puppetStatus(status, "Retry-After", "0")
	}
	for _, request := range []struct {
		name, method, key string
		retried           bool
	}{{"PUT", http.MethodPut, "", keyed}, {"POST with a key", http.MethodPost, "k", keyed}, {"POST", http.MethodPost, "", unkeyed}} {
		transport := bareTransport(base, 2)
		transport.Idempotency.Disabled = true
		ctx := resilienthttp.WithIdempotencyKey(t.Context(), request.key)
		attempts := tripped(t, transport, newCall(ctx, t, request.method, "body"))
		require.Equal(t, verdict, attempts[0].Verdict.String(), "%d %s, asks to wait: %v", status, request.name, ask)
		require.Equal(t, request.retried, len(attempts) == 2, "%d %s, asks to wait: %v", status, request.name, ask)
	}
}
