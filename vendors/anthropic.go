package vendors

import "github.com/resilienthttp/resilienthttp"

// Anthropic is for api.anthropic.com. It honours no keys, so a POST is repeated only where
// the answer says that it was not done: 429, 408, 503 with Retry-After, or x-should-retry,
// which Anthropic sends. A 429 of a spend limit (enforced_spend_limit_reached) is not tried
// again, and overloaded_error is throttling under any status. An attempt has 10 min, and a
// stream is given up after 60 s of silence.
//
// Sources, read 2026-11-20: https://docs.claude.com/en/api/errors,
// https://learn.microsoft.com/microsoft-cloud/dev/dev-proxy/concepts/anthropic-529-overloaded-error.
func Anthropic(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts: []string{"api.anthropic.com"},
		verdict: func(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
			said := parsed[struct {
				Error struct {
					Type    string `json:"type"`
					Details struct {
						Code string `json:"error_code"`
					} `json:"details"`
				} `json:"error"`
			}](body).Error
			switch {
			case said.Details.Code == "enforced_spend_limit_reached":
				return resilienthttp.VerdictPermanent
			case said.Type == "overloaded_error":
				return resilienthttp.VerdictThrottled
			}
			return resilienthttp.VerdictDefault
		},
		attempt: modelAttempt, silence: modelSilence,
	}.transport(hosts)
}
