package vendors

import (
	"net/http"
	"strings"

	"github.com/resilienthttp/resilienthttp"
)

// GitHub is for api.github.com and uploads.github.com; give it the host of an Enterprise
// Server. It honours no keys. A 403 or 429 of a secondary rate limit is throttling, also
// where no header says so; GitHub then asks for a minute of rest, so a call with a shorter
// deadline has no second chance.
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
			said := parsed[struct {
				Message string `json:"message"`
			}](body).Message
			if strings.Contains(said, "secondary rate limit") || strings.Contains(said, "abuse detection mechanism") {
				return resilienthttp.VerdictThrottled
			}
			return resilienthttp.VerdictDefault
		},
	}.transport(hosts)
}
