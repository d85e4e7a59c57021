package resilienthttp_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// TestBackoffPage_example compares the call in docs/backoff.md with one that is made now. Jitter is
// random, so durations may differ by a factor of 1.6.
func TestBackoffPage_example(t *testing.T) {
	page, err := os.ReadFile("docs/backoff.md")
	require.NoError(t, err)
	_, example, found := strings.Cut(string(page), "## Example\n")
	require.True(t, found)
	_, example, found = strings.Cut(example, "```\n")
	require.True(t, found)
	example, _, found = strings.Cut(example, "\n```")
	require.True(t, found)
	synctest.Test(t, func(t *testing.T) {
		slow := func(reply faulttest.Reply) faulttest.Reply {
			reply.Delay = 20 * time.Millisecond
			return reply
		}
		api := faulttest.NewInMemory(t, faulttest.Sequence(
			slow(faulttest.Status(http.StatusInternalServerError)),
			slow(faulttest.Unavailable(2*time.Second, faulttest.Seconds)),
			slow(faulttest.OK("")),
		))
		client := &http.Client{Transport: &resilienthttp.Transport{Base: api.Transport()}}
		resp, err := client.Get(api.URL)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		now := resilienthttp.Explain(resp, err)
		require.Equal(t, withoutTimes(example), withoutTimes(now), now)
		shown, measured := durations.FindAllString(example, -1), durations.FindAllString(now, -1)
		for i := range shown {
			a, errA := time.ParseDuration(shown[i])
			b, errB := time.ParseDuration(measured[i])
			require.NoError(t, errA)
			require.NoError(t, errB)
			if a != b {
				require.InDelta(t, a.Seconds(), b.Seconds(), 0.6*min(a, b).Seconds(), "%s, now %s:\n%s", a, b, now)
			}
		}
	})
}

var durations = regexp.MustCompile(`\b[0-9.]+(?:µs|ms|s)\b`)

// withoutTimes replaces durations, and then spaces, which depend on their lengths.
func withoutTimes(transcript string) string {
	return regexp.MustCompile(` +`).ReplaceAllString(durations.ReplaceAllString(transcript, "TIME"), " ")
}
