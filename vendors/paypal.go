package vendors

import (
	"cmp"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// PayPalKeyTTL is how long PayPal keeps a key at least, for orders. Payments keep theirs
// for longer, and an account manager can have it raised to 72 h.
const PayPalKeyTTL = 6 * time.Hour

// PayPal is for api-m.paypal.com and its sandbox, and their older names. POSTs bear a key
// in PayPal-Request-Id; not all of PayPal's APIs honour it: see the reference of yours. A
// request whose predecessor is still at work (PREVIOUS_REQUEST_IN_PROGRESS) is tried
// again. See [PayPalDecline] for cards that were refused.
//
// Sources, read 2026-11-20: https://developer.paypal.com/api/rest/reference/idempotency/,
// https://developer.paypal.com/api/payments/v2/errors/previous_request_in_progress; the
// keys' life and length, doc/controllers/orders.md of
// https://github.com/paypal/PayPal-TypeScript-Server-SDK.
func PayPal(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts:     []string{"api-m.paypal.com", "api-m.sandbox.paypal.com", "api.paypal.com", "api.sandbox.paypal.com"},
		key:       "PayPal-Request-Id",
		keyLength: 108,
		verdict: func(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
			for _, detail := range parsed[paypalAnswer](body).Details {
				if detail.Issue == "PREVIOUS_REQUEST_IN_PROGRESS" {
					return resilienthttp.VerdictTransient
				}
			}
			return resilienthttp.VerdictDefault
		},
	}.transport(hosts)
}

type paypalPayment struct {
	Processor struct {
		Response string `json:"response_code"`
		Advice   string `json:"payment_advice_code"`
	} `json:"processor_response"`
}

type paypalAnswer struct {
	paypalPayment

	Details []struct {
		Issue string `json:"issue"`
	} `json:"details"`
	Units []struct {
		Payments struct {
			Captures       []paypalPayment `json:"captures"`
			Authorizations []paypalPayment `json:"authorizations"`
		} `json:"payments"`
	} `json:"purchase_units"`
}

// PayPalDecline is why a payment was refused, as Outcome.Code for durable.Declines: the
// card network's advice (payment_advice_code, which durable.CardDeclines knows), or else
// the processor's response_code, where that is not 0000; or else the issue of an error
// such as INSTRUMENT_DECLINED. "" where nothing was refused. It reads orders, captures,
// authorizations and errors. status is not looked at.
//
// Sources, read 2026-11-20: https://developer.paypal.com/api/rest/reference/orders/v2/errors/;
// processor_response, doc/models of https://github.com/paypal/PayPal-TypeScript-Server-SDK.
func PayPalDecline(_ int, body []byte) string {
	answer := parsed[paypalAnswer](body)
	payments := []paypalPayment{answer.paypalPayment}
	for _, unit := range answer.Units {
		payments = append(append(payments, unit.Payments.Captures...), unit.Payments.Authorizations...)
	}
	for _, p := range payments {
		if p.Processor.Response == "0000" {
			continue
		}
		if code := cmp.Or(p.Processor.Advice, p.Processor.Response); code != "" {
			return code
		}
	}
	if len(answer.Details) > 0 {
		return answer.Details[0].Issue
	}
	return ""
}
