package vendors

import "github.com/resilienthttp/resilienthttp"

// Square is for connect.squareup.com and its sandbox. Its keys are a field of the body,
// idempotency_key, of which a Transport knows nothing: none is generated, and a POST is
// not repeated where it could have been done. For one that bears such a key say so, by
// giving the call the same one:
//
//	ctx = resilienthttp.WithIdempotencyKey(ctx, payment.IdempotencyKey)
//
// which also goes out as Idempotency-Key, where Square ignores it. TEMPORARY_ERROR is tried
// again then. See [SquareDecline] for cards that were refused. How long a key is kept is
// not published.
//
// Sources, read 2026-11-20: https://developer.squareup.com/docs/working-with-apis/idempotency,
// https://developer.squareup.com/reference/square/enums/ErrorCode; on the keys' life,
// https://developer.squareup.com/forums/t/how-long-are-idempotency-keys-retained-for-the-createpayment-endpoint/28303.
func Square(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts: []string{"connect.squareup.com", "connect.squareupsandbox.com"},
		verdict: func(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
			for _, e := range parsed[squareAnswer](body).Errors {
				if e.Code == "TEMPORARY_ERROR" {
					return resilienthttp.VerdictTransient
				}
			}
			return resilienthttp.VerdictDefault
		},
	}.transport(hosts)
}

type squareAnswer struct {
	Errors []struct {
		Category string `json:"category"`
		Code     string `json:"code"`
	} `json:"errors"`
}

// SquareDecline is why a payment was refused, as Outcome.Code for durable.Declines: the
// code of the first error whose category is PAYMENT_METHOD_ERROR, CARD_DECLINED say. ""
// where there is none. status is not looked at. Square tells no advice of the card
// networks, so durable.CardDeclines needs rules for its codes.
//
// Source, read 2026-11-20: https://developer.squareup.com/docs/build-basics/handling-errors.
func SquareDecline(_ int, body []byte) string {
	for _, e := range parsed[squareAnswer](body).Errors {
		if e.Category == "PAYMENT_METHOD_ERROR" {
			return e.Code
		}
	}
	return ""
}
