package vendors

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/durable"
)

func TestDeclines(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		read func(int, []byte) string
		body string
		want string
	}{
		{"Stripe, advice", StripeDecline, `{"error":{"type":"card_error","code":"card_declined","decline_code":"generic_decline","network_advice_code":"03","network_decline_code":"59"}}`, "03"},
		{"Stripe, no advice", StripeDecline, `{"error":{"type":"card_error","code":"card_declined","decline_code":"insufficient_funds"}}`, "insufficient_funds"},
		{"Stripe, the code alone", StripeDecline, `{"error":{"type":"card_error","code":"expired_card"}}`, "expired_card"},
		{"Stripe, an intent", StripeDecline, `{"object":"payment_intent","last_payment_error":{"type":"card_error","code":"card_declined","network_advice_code":"24"}}`, "24"},
		{"Stripe, no card", StripeDecline, `{"error":{"type":"invalid_request_error","code":"parameter_missing"}}`, ""},
		{"Stripe, a success", StripeDecline, `{"object":"payment_intent","status":"succeeded","last_payment_error":null}`, ""},
		{"PayPal, advice", PayPalDecline, `{"id":"1","purchase_units":[{"payments":{"captures":[{"status":"DECLINED","processor_response":{"response_code":"5120","payment_advice_code":"21"}}]}}]}`, "21"},
		{"PayPal, no advice", PayPalDecline, `{"purchase_units":[{"payments":{"authorizations":[{"processor_response":{"response_code":"0500"}}]}}]}`, "0500"},
		{"PayPal, a capture", PayPalDecline, `{"status":"DECLINED","processor_response":{"response_code":"9500","payment_advice_code":"03"}}`, "03"},
		{"PayPal, approved", PayPalDecline, `{"processor_response":{"response_code":"0000","payment_advice_code":"01"}}`, ""},
		{"PayPal, an error", PayPalDecline, `{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"INSTRUMENT_DECLINED"}]}`, "INSTRUMENT_DECLINED"},
		{"Adyen, advice", AdyenDecline, `{"resultCode":"Refused","refusalReasonCode":"2","additionalData":{"merchantAdviceCode":"24 : Retry after 1 hour"}}`, "24"},
		{"Adyen, no advice", AdyenDecline, `{"resultCode":"Refused","refusalReason":"Refused","refusalReasonCode":"2"}`, "2"},
		{"Adyen, authorised", AdyenDecline, `{"resultCode":"Authorised","additionalData":{"merchantAdviceCode":"01"}}`, ""},
		{"Adyen, an error", AdyenDecline, `{"status":422,"errorCode":"101","message":"Invalid card number"}`, "101"},
		{"Square, a card", SquareDecline, `{"errors":[{"category":"API_ERROR","code":"X"},{"category":"PAYMENT_METHOD_ERROR","code":"CARD_DECLINED"}]}`, "CARD_DECLINED"},
		{"Square, no card", SquareDecline, `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"BAD_REQUEST"}]}`, ""},
	} {
		assert.Equal(t, row.want, row.read(402, []byte(row.body)), row.name)
	}
	for _, read := range []func(int, []byte) string{StripeDecline, PayPalDecline, AdyenDecline, SquareDecline} {
		for _, body := range []string{"", "null", "[]", `"x"`, `{"error":3,"errors":{},"details":"x","resultCode":[]}`, "<html>"} {
			assert.Empty(t, read(500, []byte(body)), body)
		}
	}
}

// The codes of StripeDecline are those that durable.CardDeclines knows.
func TestStripeDecline_isKnownToCardDeclines(t *testing.T) {
	t.Parallel()
	next := func(body string) durable.Decision {
		return durable.CardDeclines().Next(&durable.History{
			Attempts: 1, Since: time.Now(), Outcome: durable.Outcome{Class: durable.ClassDeclined, Code: StripeDecline(402, []byte(body))},
		}, time.Now())
	}
	assert.Equal(t, durable.Retry, next(`{"error":{"type":"card_error","network_advice_code":"24"}}`).Action)
	assert.Equal(t, durable.Bury, next(`{"error":{"type":"card_error","network_advice_code":"03"}}`).Action)
}
