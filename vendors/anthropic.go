package vendors

import (
	"cmp"
	"net/http"

	"github.com/resilienthttp/resilienthttp"
)

// Anthropic returns a Transport for api.anthropic.com. The API does not honour keys. A completion (a POST to messages,
// complete or count_tokens) may be done twice, so it is retried like a GET: a second one may be billed.
// t.Policy.Idempotent = nil turns it off. Any other POST is retried only if the response means that it was not executed:
// 429, or x-should-retry, which Anthropic sends. A 429 of a spend limit
// (enforced_spend_limit_reached) is not retried. overloaded_error is throttling with any status. The API then "turned the
// request down", so nothing was executed, and any POST is retried.
//
// A stream is an answer when its first event of content is there: see resilienthttp.Stream. AttemptTimeout and
// ReadTimeout are 10 min. Each family of models has quotas of its own: RateLimit.Key is the family of the body's model.
// RateLimit.Cost estimates the tokens of a request: a quarter of its bytes, and max_tokens.
//
// Sources, read 2026-11-20: https://docs.claude.com/en/api/errors,
// https://docs.claude.com/en/api/rate-limits,
// https://learn.microsoft.com/microsoft-cloud/dev/dev-proxy/concepts/anthropic-529-overloaded-error; read 2026-11-25:
// https://docs.claude.com/en/docs/build-with-claude/streaming.
func Anthropic(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts: []string{"api.anthropic.com"},
		verdict: func(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
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
				a.NotExecuted = true
				return resilienthttp.VerdictThrottled
			}
			return resilienthttp.VerdictDefault
		},
		cost:           tokensOf,
		quotaKey:       func(r *http.Request) string { return familyOf(modelOf(r)) },
		attemptTimeout: modelAttemptTimeout, readTimeout: modelReadTimeout,
		event: anthropicEvent, harmless: []string{"messages", "complete", "count_tokens"},
	}.transport(hosts)
}

func anthropicEvent(name string, data []byte) resilienthttp.Verdict {
	event := parse[struct {
		Type  string `json:"type"`
		Error struct {
			Type string `json:"type"`
		} `json:"error"`
	}](data)
	switch cmp.Or(name, event.Type) {
	case "ping", "message_start":
		return resilienthttp.VerdictPending
	case "error":
	default:
		return resilienthttp.VerdictDefault
	}
	switch event.Error.Type {
	case "overloaded_error", "rate_limit_error":
		return resilienthttp.VerdictThrottled
	case "api_error", "timeout_error", "": // "": it cannot be read
		return resilienthttp.VerdictTransient
	}
	return resilienthttp.VerdictPermanent
}
