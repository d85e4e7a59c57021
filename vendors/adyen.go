package vendors

import (
	"cmp"
	"strings"

	"github.com/resilienthttp/resilienthttp"
)

// Adyen returns a Transport for *.adyen.com and *.adyenpayments.com, the test and live
// endpoints. Each POST gets a key of at most 64 characters. Adyen stores keys per region, for at least 7 d (durable.Engine.KeyTTL). An
// error with the header transient-error: true is retried with the same key. Error 704 (already
// processed or in progress) without this header is not retried. See [AdyenDecline] for declined
// cards.
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

type adyenResponse struct {
	ErrorCode  string `json:"errorCode"`
	Result     string `json:"resultCode"`
	Refusal    string `json:"refusalReasonCode"`
	Additional struct {
		Advice string `json:"merchantAdviceCode"`
	} `json:"additionalData"`
}

// AdyenDecline returns the decline code of a payment, for Outcome.Code and durable.Declines: the
// card network's advice (merchantAdviceCode, which durable.CardDeclines knows), otherwise
// refusalReasonCode, otherwise the errorCode of an error. It returns "" if nothing was
// declined. Adyen sends declines with status 200; the status is ignored.
//
// Sources, read 2026-11-20: https://docs.adyen.com/development-resources/raw-acquirer-responses,
// ResponseAdditionalDataCommon of https://github.com/Adyen/adyen-go-api-library.
func AdyenDecline(_ int, body []byte) string {
	response := parse[adyenResponse](body)
	if response.Result == "Authorised" {
		return ""
	}
	advice, _, _ := strings.Cut(response.Additional.Advice, " ") // "03 : Do not try again"
	return cmp.Or(advice, response.Refusal, response.ErrorCode)
}
