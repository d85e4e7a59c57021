package vendors

import (
	"net/http"

	"github.com/resilienthttp/resilienthttp"
)

// Anthropic returns a Transport for api.anthropic.com. The API does not honour keys, so a POST
// is retried only if the response means that it was not executed: 429, 408, 503 with
// Retry-After, or x-should-retry, which Anthropic sends. A 429 of a spend limit
// (enforced_spend_limit_reached) is not retried. overloaded_error is throttling with any
// status. AttemptTimeout is 10 min and ReadTimeout 60 s. Each family of models has quotas of its
// own: RateLimit.Key is the family of the body's model. RateLimit.Cost estimates the tokens of a
// request: a quarter of its bytes, and max_tokens.
//
// Sources, read 2026-11-20: https://docs.claude.com/en/api/errors,
// https://docs.claude.com/en/api/rate-limits,
// https://learn.microsoft.com/microsoft-cloud/dev/dev-proxy/concepts/anthropic-529-overloaded-error.
func Anthropic(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts: []string{"api.anthropic.com"},
		verdict: func(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
			apiError := parse[struct {
				Error struct {
					Type    string `json:"type"`
					Details struct {
						Code string `json:"error_code"`
					} `json:"details"`
				} `json:"error"`
			}](body).Error
			switch {
			case apiError.Details.Code == "enforced_spend_limit_reached":
				return resilienthttp.VerdictPermanent
			case apiError.Type == "overloaded_error":
				return resilienthttp.VerdictThrottled
			}
			return resilienthttp.VerdictDefault
		},
		cost:           tokensOf,
		quotaKey:       func(r *http.Request) string { return familyOf(modelOf(r)) },
		attemptTimeout: modelAttemptTimeout, readTimeout: modelReadTimeout,
	}.transport(hosts)
}
