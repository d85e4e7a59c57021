package vendors

import "github.com/resilienthttp/resilienthttp"

// Square returns a Transport for connect.squareup.com and its sandbox. Square's keys are a field of
// the body (idempotency_key). The Transport generates no key, and retries a POST only if it was
// not executed. To permit retries, also after TEMPORARY_ERROR, pass the key of the body to
// resilienthttp.WithIdempotencyKey. Square ignores the header Idempotency-Key, and does not publish
// how long it stores a key. See [SquareDecline] for declined cards.
//
// Sources, read 2026-11-20: https://developer.squareup.com/docs/working-with-apis/idempotency,
// https://developer.squareup.com/reference/square/enums/ErrorCode; retention of keys:
// https://developer.squareup.com/forums/t/how-long-are-idempotency-keys-retained-for-the-createpayment-endpoint/28303.
func Square(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts: []string{"connect.squareup.com", "connect.squareupsandbox.com"},
		verdict: func(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
			for _, e := range parse[squareResponse](body).Errors {
				if e.Code == "TEMPORARY_ERROR" {
					return resilienthttp.VerdictTransient
				}
			}
			return resilienthttp.VerdictDefault
		},
	}.transport(hosts)
}

type squareResponse struct {
	Errors []struct {
		Category string `json:"category"`
		Code     string `json:"code"`
	} `json:"errors"`
}

// SquareDecline returns the decline code of a payment, for Outcome.Code and durable.Declines:
// the code of the first error with category PAYMENT_METHOD_ERROR, such as CARD_DECLINED. It
// returns "" if there is none. The status is ignored. Square does not send the card networks'
// advice, so durable.CardDeclines needs rules for its codes.
//
// Source, read 2026-11-20: https://developer.squareup.com/docs/build-basics/handling-errors.
func SquareDecline(_ int, body []byte) string {
	for _, e := range parse[squareResponse](body).Errors {
		if e.Category == "PAYMENT_METHOD_ERROR" {
			return e.Code
		}
	}
	return ""
}
