package vendors

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// Google returns a Transport for *.googleapis.com: Gemini, Drive, Gmail, Calendar, Cloud and
// others. The APIs honour no key in a header. The wait of an error (google.rpc.RetryInfo) is in
// its body, and the call waits as long. A 403 with the reason rateLimitExceeded or
// userRateLimitExceeded is throttled like a 429, so nothing was executed, and a POST is repeated. A used-up
// quota of a day (google.rpc.QuotaFailure) is not retried, whatever wait the error has.
//
// Sources, read 2026-11-22:
// https://docs.cloud.google.com/java/docs/reference/proto-google-common-protos/latest/com.google.rpc.RetryInfo,
// https://developers.google.com/drive/api/guides/limits (read 2026-11-29 again: above a quota the answer is 403, or 429
// after "additional rate limit checks on the Drive backend"),
// https://ai.google.dev/gemini-api/docs/rate-limits; bodies of errors:
// https://github.com/googleapis/python-genai/issues/1875,
// https://dev.to/cynora/gemini-api-free-tier-429-per-minute-vs-per-day-limits-measured-on-four-models-mpc.
func Google(hosts ...string) *resilienthttp.Transport {
	return profile{hosts: []string{"*.googleapis.com"}, verdict: googleVerdict}.transport(hosts)
}

func googleVerdict(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
	e := parseGoogleError(body)
	if e.ofADay() {
		return resilienthttp.VerdictPermanent
	}
	a.RetryAfter = max(a.RetryAfter, e.wait())
	if a.Response.StatusCode == http.StatusForbidden && e.limitsTheRate() {
		a.NotExecuted = true
		return resilienthttp.VerdictThrottled
	}
	return resilienthttp.VerdictDefault
}

type googleError struct {
	Errors []struct {
		Reason string `json:"reason"`
	} `json:"errors"`
	Details []struct {
		Type       string `json:"@type"`
		RetryDelay string `json:"retryDelay"` // of RetryInfo
		Violations []struct {
			QuotaID string `json:"quotaId"`
		} `json:"violations"` // of QuotaFailure
	} `json:"details"`
}

type googleResponse struct {
	Error googleError `json:"error"`
}

// parseGoogleError reads the error. Methods that stream their response send it in a list.
func parseGoogleError(body []byte) googleError {
	if list := parse[[]googleResponse](body); len(list) > 0 {
		return list[0].Error
	}
	return parse[googleResponse](body).Error
}

// wait returns the longest retryDelay, or 0. It is a Duration of proto3's JSON: "38s", "1.5s".
func (e *googleError) wait() (longest time.Duration) {
	for _, d := range e.Details {
		seconds, ok := strings.CutSuffix(d.RetryDelay, "s")
		if !ok || d.Type != "type.googleapis.com/google.rpc.RetryInfo" {
			continue
		}
		if n, ok := retryafter.ParseNumber(seconds); ok {
			longest = max(longest, n.Duration(time.Second))
		}
	}
	return longest
}

// ofADay reports whether a quota of a day is used up, such as
// GenerateRequestsPerDayPerProjectPerModel-FreeTier.
func (e *googleError) ofADay() bool {
	for _, d := range e.Details {
		if d.Type != "type.googleapis.com/google.rpc.QuotaFailure" {
			continue
		}
		for _, v := range d.Violations {
			if strings.Contains(v.QuotaID, "PerDay") {
				return true
			}
		}
	}
	return false
}

func (e *googleError) limitsTheRate() bool {
	for _, one := range e.Errors {
		if slices.Contains([]string{"rateLimitExceeded", "userRateLimitExceeded"}, one.Reason) {
			return true
		}
	}
	return false
}
