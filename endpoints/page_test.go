package endpoints_test

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
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// TestPage_example compares the calls in docs/endpoints.md with calls that are made now. Jitter is random,
// so durations of waits may differ.
func TestPage_example(t *testing.T) {
	page, err := os.ReadFile("../docs/endpoints.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "## Example\n")
	require.True(t, found)
	var shown []string
	for range 2 {
		_, rest, found = strings.Cut(rest, "```\n")
		require.True(t, found)
		var block string
		block, rest, found = strings.Cut(rest, "\n```")
		require.True(t, found)
		shown = append(shown, block)
	}
	synctest.Test(t, func(t *testing.T) {
		fails := faulttest.Sequence(
			faulttest.Reply{Status: http.StatusServiceUnavailable, Delay: 20 * time.Millisecond},
			faulttest.Reply{Status: http.StatusServiceUnavailable, Delay: 20 * time.Millisecond},
			faulttest.Reply{Body: "ok", Delay: 20 * time.Millisecond},
		)
		frankfurt := &faulttest.Server{InMemory: true, Host: "frankfurt.test", Script: fails}
		frankfurt.Start(t)
		dublin := &faulttest.Server{Network: frankfurt, Host: "dublin.test", Script: faulttest.Reply{Body: "ok", Delay: 35 * time.Millisecond}}
		dublin.Start(t)
		list := &endpoints.Transport{
			Endpoints: []endpoints.Endpoint{{URL: parse(t, frankfurt.URL)}, {URL: parse(t, dublin.URL)}},
			Transport: &resilienthttp.Transport{Base: frankfurt.Transport()},
		}
		for i, method := range []string{http.MethodGet, http.MethodPost} {
			resp, err := send(t, list, method, frankfurt.URL+"/orders", map[string]string{http.MethodPost: "{}"}[method])
			require.NoError(t, err)
			now := resilienthttp.Explain(resp, err)
			require.Equal(t, withoutTimes(shown[i]), withoutTimes(now), now)
		}
	})
}

// withoutTimes replaces dates and durations, and then spaces, which depend on their lengths.
func withoutTimes(transcript string) string {
	transcript = regexp.MustCompile(`began [-0-9]+ [:.0-9]+`).ReplaceAllString(transcript, "began TIME")
	times := regexp.MustCompile(`\b[0-9.]+(?:µs|ms|s)\b`).ReplaceAllString(transcript, "TIME")
	return regexp.MustCompile(` +`).ReplaceAllString(times, " ")
}
