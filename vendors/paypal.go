package vendors

import (
	"cmp"

	"github.com/resilienthttp/resilienthttp"
)

// PayPal returns a Transport for api-m.paypal.com, its sandbox, and their older names. Each POST
// gets a key in PayPal-Request-Id. Not all of PayPal's APIs honour it: check the reference of
// your API. PayPal stores the key of an order for at least 6 h (durable.Engine.KeyTTL), and those of
// payments longer. PREVIOUS_REQUEST_IN_PROGRESS is retried. See [PayPalDecline] for declined cards.
//
// Sources, read 2026-11-20: https://developer.paypal.com/api/rest/reference/idempotency/,
// https://developer.paypal.com/api/payments/v2/errors/previous_request_in_progress; retention
// and length of keys: doc/controllers/orders.md of
// https://github.com/paypal/PayPal-TypeScript-Server-SDK.
func PayPal(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts:     []string{"api-m.paypal.com", "api-m.sandbox.paypal.com", "api.paypal.com", "api.sandbox.paypal.com"},
		key:       "PayPal-Request-Id",
		keyLength: 108,
		verdict: func(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
			for _, detail := range parse[paypalResponse](body).Details {
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

type paypalResponse struct {
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

// PayPalDecline returns the decline code of a payment, for Outcome.Code and durable.Declines:
// the card network's advice (payment_advice_code, which durable.CardDeclines knows), otherwise
// the processor's response_code if it is not 0000, otherwise the issue of an error, such as
// INSTRUMENT_DECLINED. It returns "" if nothing was declined. The body is an order, a capture,
// an authorization or an error. The status is ignored.
//
// Sources, read 2026-11-20: https://developer.paypal.com/api/rest/reference/orders/v2/errors/;
// processor_response, doc/models of https://github.com/paypal/PayPal-TypeScript-Server-SDK.
func PayPalDecline(_ int, body []byte) string {
	response := parse[paypalResponse](body)
	payments := []paypalPayment{response.paypalPayment}
	for _, unit := range response.Units {
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
	if len(response.Details) > 0 {
		return response.Details[0].Issue
	}
	return ""
}
