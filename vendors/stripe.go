package vendors

import (
	"cmp"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// StripeKeyTTL is how long Stripe keeps a key at least: durable.Engine.KeyTTL.
const StripeKeyTTL = 24 * time.Hour

// Stripe is for api.stripe.com and its sisters. All POSTs bear a key. A lock that was
// taken (lock_timeout, a 400 or 429) and a key whose first request is still at work
// (idempotency_key_in_use, a 409) are tried again; Stripe-Should-Retry comes first, as
// everywhere. See [StripeDecline] for cards that were refused.
//
// Sources, read 2026-11-20: https://docs.stripe.com/api/idempotent_requests,
// https://docs.stripe.com/api/errors; that lock timeouts pass, the retries of
// https://github.com/stripe/stripe-ruby.
func Stripe(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts: []string{"*.stripe.com"},
		key:   "Idempotency-Key",
		verdict: func(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
			switch parsed[stripeAnswer](body).Error.Code {
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

type stripeAnswer struct {
	Error            stripeError `json:"error"`
	LastPaymentError stripeError `json:"last_payment_error"`
}

// StripeDecline is why a card was refused, as Outcome.Code for durable.Declines: the
// card network's advice (network_advice_code, which durable.CardDeclines knows), or else
// decline_code, or else code. "" where no card was refused. It reads an error, and a
// PaymentIntent whose last payment has failed. status is not looked at.
//
// Sources, read 2026-11-20: https://docs.stripe.com/api/errors,
// https://docs.stripe.com/changelog/acacia/2024-12-18/network-advice-code-network-decline-code.
func StripeDecline(_ int, body []byte) string {
	answer := parsed[stripeAnswer](body)
	e := cmp.Or(answer.Error, answer.LastPaymentError)
	if e.Type != "card_error" {
		return ""
	}
	return cmp.Or(e.NetworkAdviceCode, e.DeclineCode, e.Code)
}
