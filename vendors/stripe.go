package vendors

import (
	"cmp"

	"github.com/resilienthttp/resilienthttp"
)

// Stripe returns a Transport for *.stripe.com. Each POST gets a key, which
// Stripe stores for at least 24 h (durable.Engine.KeyTTL). The Transport retries a
// lock timeout (lock_timeout, 400 or 429) and a key with a request in progress
// (idempotency_key_in_use, 409). Stripe-Should-Retry has precedence. See [StripeDecline] for
// declined cards.
//
// By default an endpoint (a method and a path, whatever the IDs in it) takes 25 requests a second,
// and an account 100, or 25 in a sandbox. Limits of your account may be higher. API v1 replays the
// stored response to a repeated key, also a 500. API v2 tries the failed work again and returns a
// new response, so a retry can succeed there.
//
// Sources, read 2026-11-20: https://docs.stripe.com/api/idempotent_requests,
// https://docs.stripe.com/api/errors; retries after lock timeouts:
// https://github.com/stripe/stripe-ruby; 2026-11-22: https://docs.stripe.com/rate-limits,
// https://docs.stripe.com/api-v2-overview.
func Stripe(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts: []string{"*.stripe.com"},
		key:   "Idempotency-Key",
		verdict: func(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
			switch parse[stripeResponse](body).Error.Code {
			case "lock_timeout", "idempotency_key_in_use":
				return resilienthttp.VerdictTransient
			}
			return resilienthttp.VerdictDefault
		},
	}.transport(hosts)
}

type stripeError struct {
	Type              string `json:"type"`
	Code              string `json:"code"`
	DeclineCode       string `json:"decline_code"`
	NetworkAdviceCode string `json:"network_advice_code"`
}

type stripeResponse struct {
	Error            stripeError `json:"error"`
	LastPaymentError stripeError `json:"last_payment_error"`
}

// StripeDecline returns the decline code of a card, for Outcome.Code and durable.Declines: the
// card network's advice (network_advice_code, which durable.CardDeclines knows), otherwise
// decline_code, otherwise code. It returns "" if no card was declined. The body is an error or
// a PaymentIntent with a failed payment. The status is ignored.
//
// Sources, read 2026-11-20: https://docs.stripe.com/api/errors,
// https://docs.stripe.com/changelog/acacia/2024-12-18/network-advice-code-network-decline-code.
func StripeDecline(_ int, body []byte) string {
	response := parse[stripeResponse](body)
	e := cmp.Or(response.Error, response.LastPaymentError)
	if e.Type != "card_error" {
		return ""
	}
	return cmp.Or(e.NetworkAdviceCode, e.DeclineCode, e.Code)
}
