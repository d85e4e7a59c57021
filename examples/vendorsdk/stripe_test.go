package vendorsdk_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/examples/vendorsdk"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

func TestRefund(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		script   script
		key      string
		requests int
		refunds  int
		code     string // of the error; "" means none
		again    time.Duration
	}{
		{name: "success: one request", script: before(), requests: 1, refunds: 1},
		{name: "key of the caller: sent", script: before(unavailable), key: "comp1:refund:001", requests: 2, refunds: 1},
		{name: "response lost: one refund", script: func(refund http.Handler) http.Handler {
			return faulttest.Sequence(faulttest.LoseResponse(refund), refund)
		}, requests: 2, refunds: 1},
		{name: "400 of a lock: retry", script: before(stripeError(http.StatusBadRequest, "lock_timeout")), requests: 2, refunds: 1},
		{name: "first request in progress: retry", script: before(stripeError(http.StatusConflict, "idempotency_key_in_use")), requests: 2, refunds: 1},
		{
			name: "other 400: no retry", script: always(stripeError(http.StatusBadRequest, "charge_already_refunded")),
			requests: 1, code: "charge_already_refunded",
		},
		{
			name: "429 with a Retry-After above the policy: returned", script: always(func() faulttest.Reply {
				reply := stripeError(http.StatusTooManyRequests, "rate_limit")
				reply.RetryAfter = 20 * time.Second
				return reply
			}()),
			requests: 1, code: "rate_limit", again: 20 * time.Second,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				refunds := &faulttest.Idempotent{Handler: faulttest.OK(`{"id":"re_1","charge":"ch_1","amount":500}`)}
				srv := faulttest.NewInMemory(t, row.script(refunds))
				client := &vendorsdk.Stripe{BaseURL: srv.URL, APIKey: "sk_test", Base: srv.Transport()}

				refund, err := client.Refund(t.Context(), "ch_1", 500, row.key)
				if row.code == "" {
					require.NoError(t, err)
					assert.Equal(t, &vendorsdk.Refund{ID: "re_1", Charge: "ch_1", Amount: 500}, refund)
				} else {
					var e *vendorsdk.Error
					require.ErrorAs(t, err, &e)
					assert.Equal(t, row.code, e.Code)
					notBefore := checkCallAgain(t, err, row.again > 0)
					assert.Equal(t, row.again > 0, notBefore.Equal(time.Now().Add(row.again)))
				}
				srv.AssertRequests(t, row.requests)
				srv.AssertKeys(t, 1)
				refunds.AssertExactlyOnce(t, row.refunds)
				for _, r := range srv.Requests() {
					assert.Equal(t, "Bearer sk_test", r.Header.Get("Authorization"))
					assert.Equal(t, "amount=500&charge=ch_1", string(r.Body))
					if row.key != "" {
						assert.Equal(t, row.key, r.Key)
					}
				}
			})
		})
	}
}

func stripeError(status int, code string) faulttest.Reply {
	return faulttest.Reply{
		Status: status, Header: http.Header{"Request-Id": {"req_1"}},
		Body: fmt.Sprintf(`{"error":{"type":"invalid_request_error","code":%q,"message":"No."}}`, code),
	}
}
