package vendors

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// googleBody is an error of the Gemini API with a violated quota and a wait.
func googleBody(quotaID, wait string) string {
	return fmt.Sprintf(`{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED","details":[`+
		`{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_content_free_tier_requests","quotaId":%q,"quotaValue":"10"}]},`+
		`{"@type":"type.googleapis.com/google.rpc.Help","links":[{"url":"https://ai.google.dev/gemini-api/docs/rate-limits"}]},`+
		`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":%q}]}}`, quotaID, wait)
}

// V8: the wait of the body is the call's wait, at Google's hosts only.
func TestGoogle_waits(t *testing.T) {
	t.Parallel()
	const minute = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
	other := `{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.Other","retryDelay":"38s"}]}}`
	for _, row := range []struct {
		name, host, method string
		status             int
		body, retryAfter   string
		attempts           int
		want               time.Duration // Attempt.RetryAfter
	}{
		{"one retry at 38 s", "generativelanguage.googleapis.com", "GET", 429, googleBody(minute, "38s"), "", 2, 38 * time.Second},
		{"a POST, which a 429 did not execute", "generativelanguage.googleapis.com", "POST", 429, googleBody(minute, "38s"), "", 2, 38 * time.Second},
		{"a fraction", "generativelanguage.googleapis.com", "GET", 429, googleBody(minute, "1.000340012s"), "", 2, 1000340012},
		{"in a list", "generativelanguage.googleapis.com", "GET", 429, "[" + googleBody(minute, "38s") + "]", "", 2, 38 * time.Second},
		{"503", "storage.googleapis.com", "GET", 503, googleBody("", "38s"), "", 2, 38 * time.Second},
		{"V1: 503 of a POST", "storage.googleapis.com", "POST", 503, googleBody("", "38s"), "", 1, 38 * time.Second},
		{"a shorter header", "storage.googleapis.com", "GET", 429, googleBody(minute, "38s"), "2", 2, 38 * time.Second},
		{"a longer header", "storage.googleapis.com", "GET", 429, googleBody(minute, "38s"), "50", 2, 50 * time.Second},
		{"too long", "storage.googleapis.com", "GET", 429, googleBody(minute, "61s"), "", 1, 61 * time.Second},
		{"overflow", "storage.googleapis.com", "GET", 429, googleBody(minute, "99999999999999999999s"), "", 1, retryafter.Max},
		{"a quota of a day: at once, without its wait", "generativelanguage.googleapis.com", "GET", 429, googleBody("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "38s"), "", 1, 0},
		{"negative", "storage.googleapis.com", "GET", 429, googleBody(minute, "-38s"), "", 2, 0},
		{"another unit", "storage.googleapis.com", "GET", 429, googleBody(minute, "38m"), "", 2, 0},
		{"another detail", "storage.googleapis.com", "GET", 429, other, "", 2, 0},
		{"V2: another host", "example.test", "GET", 429, googleBody(minute, "38s"), "", 2, 0},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			reply := faulttest.Reply{Status: row.status, Body: row.body}
			if row.retryAfter != "" {
				reply.Header = http.Header{"Retry-After": {row.retryAfter}}
			}
			began := time.Now()
			_, attempts := call(t, Google(), row.method, "http://"+row.host+"/v1", faulttest.Sequence(reply, faulttest.OK("{}")))
			require.Len(t, attempts, row.attempts)
			assert.Equal(t, row.want, attempts[0].RetryAfter)
			if row.attempts == 1 {
				assert.Zero(t, time.Since(began))
			} else {
				assert.GreaterOrEqual(t, time.Since(began), row.want)
				assert.LessOrEqual(t, time.Since(began), row.want+max(row.want/2, time.Second))
			}
		})
	}
}

// A body of any form gives a wait from 0 to the maximum, and a wait of RetryInfo is exact.
func FuzzGoogle(f *testing.F) {
	f.Add([]byte(googleBody("", "38s")), int64(time.Second))
	f.Fuzz(func(t *testing.T, body []byte, wait int64) {
		a := resilienthttp.Attempt{Response: &http.Response{StatusCode: http.StatusForbidden}}
		v := googleVerdict(&a, body)
		require.Contains(t, []resilienthttp.Verdict{resilienthttp.VerdictDefault, resilienthttp.VerdictPermanent, resilienthttp.VerdictThrottled}, v)
		require.GreaterOrEqual(t, a.RetryAfter, time.Duration(0))
		require.LessOrEqual(t, a.RetryAfter, retryafter.Max)
		if !json.Valid(body) {
			require.Zero(t, a.RetryAfter)
		}
		d := time.Duration(wait & math.MaxInt64)
		e := parseGoogleError([]byte(googleBody("", fmt.Sprintf("%d.%09ds", d/time.Second, d%time.Second))))
		require.Equal(t, min(d, retryafter.Max), e.wait())
	})
}
