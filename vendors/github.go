package vendors

import (
	"net/http"
	"strings"

	"github.com/resilienthttp/resilienthttp"
)

// GitHub returns a Transport for api.github.com and uploads.github.com. For an Enterprise
// Server pass its host. The API does not honour keys. A 403 or 429 of a secondary rate limit is
// throttling, also without rate-limit headers. GitHub then asks for a wait of one minute, so a
// call with a shorter deadline is not retried.
//
// Source, read 2026-11-20:
// https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api.
func GitHub(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts: []string{"api.github.com", "uploads.github.com"},
		verdict: func(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
			status := a.Response.StatusCode
			if status != http.StatusForbidden && status != http.StatusTooManyRequests {
				return resilienthttp.VerdictDefault
			}
			message := parse[struct {
				Message string `json:"message"`
			}](body).Message
			if strings.Contains(message, "secondary rate limit") || strings.Contains(message, "abuse detection mechanism") {
				return resilienthttp.VerdictThrottled
			}
			return resilienthttp.VerdictDefault
		},
	}.transport(hosts)
}
