package vendors

import (
	"cmp"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// AdyenKeyTTL is how long Adyen keeps a key at least.
const AdyenKeyTTL = 7 * 24 * time.Hour

// Adyen is for adyen.com and adyenpayments.com, which end the names of its test and live
// endpoints. POSTs bear a key, of 64 characters at most; a region knows only its own. An
// error with the header transient-error: true is tried again under the same key; one that
// says that the request was processed already or is in progress (704) without it is not.
// See [AdyenDecline] for cards that were refused.
//
// Source, read 2026-11-20: https://docs.adyen.com/development-resources/api-idempotency.
func Adyen(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts:     []string{"*.adyen.com", "*.adyenpayments.com"},
		key:       "Idempotency-Key",
		keyLength: 64,
		verdict: func(a *resilienthttp.Attempt, _ []byte) resilienthttp.Verdict {
			if strings.EqualFold(a.Response.Header.Get("Transient-Error"), "true") {
				return resilienthttp.VerdictTransient
			}
			return resilienthttp.VerdictDefault
		},
	}.transport(hosts)
}

type adyenAnswer struct {
	ErrorCode  string `json:"errorCode"`
	Result     string `json:"resultCode"`
	Refusal    string `json:"refusalReasonCode"`
	Additional struct {
		Advice string `json:"merchantAdviceCode"`
	} `json:"additionalData"`
}

// AdyenDecline is why a payment was refused, as Outcome.Code for durable.Declines: the
// card network's advice (merchantAdviceCode, which durable.CardDeclines knows), or else
// refusalReasonCode; or else the errorCode of an error. "" where nothing was refused. A
// refusal comes with status 200. status is not looked at.
//
// Sources, read 2026-11-20: https://docs.adyen.com/development-resources/raw-acquirer-responses,
// ResponseAdditionalDataCommon of https://github.com/Adyen/adyen-go-api-library.
func AdyenDecline(_ int, body []byte) string {
	answer := parsed[adyenAnswer](body)
	if answer.Result == "Authorised" {
		return ""
	}
	advice, _, _ := strings.Cut(answer.Additional.Advice, " ") // "03 : Do not try again"
	return cmp.Or(advice, answer.Refusal, answer.ErrorCode)
}
