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

// TestAnswersDoc is §4.8 and §4.9 as docs/answers.md tells of them: each row of its first
// table is what happens.
func TestAnswersDoc(t *testing.T) {
	page, err := os.ReadFile("docs/answers.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "## Answers\n")
	require.True(t, found)
	tried := map[int]int{}
	for line := range strings.SplitSeq(table, "\n") {
		if strings.HasPrefix(line, "## ") {
			break
		}
		cells := strings.Split(line, " | ")
		if len(cells) != 6 || strings.HasPrefix(line, "| status") {
			continue
		}
		for _, status := range statusesOf(t, strings.TrimPrefix(cells[0], "| ")) {
			asks := map[string][]bool{"–": {false, true}, "no": {false}, "yes": {true}}[cells[1]]
			require.NotEmpty(t, asks, line)
			for _, ask := range asks {
				tried[status]++
				tryAnswer(t, status, ask, cells[2], cells[3] == "repeated", cells[4] == "repeated")
			}
		}
	}
	for _, status := range []int{200, 301, 399, 400, 403, 408, 409, 422, 425, 429, 419, 451, 500, 501, 502, 503, 504, 511, 520, 529, 600} {
		require.Equal(t, 2, tried[status], "%d with and without a wait", status)
	}
}

// statusesOf reads "500, 502" and "100–399".
func statusesOf(t *testing.T, cell string) (statuses []int) {
	t.Helper()
	for part := range strings.SplitSeq(cell, ", ") {
		for words, some := range map[string]string{"and all other 4xx": "419", "and all other 5xx": "520", "and 600 or above": "600"} {
			if part == words {
				part = some
			}
		}
		first, last, ranged := strings.Cut(part, "–")
		from, err := strconv.Atoi(first)
		require.NoError(t, err, cell)
		to := from
		if ranged {
			to, err = strconv.Atoi(last)
			require.NoError(t, err, cell)
		}
		for status := from; status <= to; status++ {
			statuses = append(statuses, status)
		}
	}
	return statuses
}

func tryAnswer(t *testing.T, status int, ask bool, verdict string, keyed, unkeyed bool) {
	t.Helper()
	base := puppetStatus(status)
	if ask {
		base = puppetStatus(status, "Retry-After", "0")
	}
	for _, request := range []struct {
		name, method, key string
		repeated          bool
	}{{"PUT", http.MethodPut, "", keyed}, {"POST with a key", http.MethodPost, "k", keyed}, {"POST", http.MethodPost, "", unkeyed}} {
		transport := bareTransport(base, 2)
		transport.Idempotency.Disabled = true
		ctx := resilienthttp.WithIdempotencyKey(t.Context(), request.key)
		attempts := tripped(t, transport, newCall(ctx, t, request.method, "body"))
		require.Equal(t, verdict, attempts[0].Verdict.String(), "%d %s, asks to wait: %v", status, request.name, ask)
		require.Equal(t, request.repeated, len(attempts) == 2, "%d %s, asks to wait: %v", status, request.name, ask)
	}
}
