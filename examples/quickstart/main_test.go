package main

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// The program in virtual time: each customer is charged once, although each fault occurs.
func TestChargeAll_chargesEachOrderOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 300
		var ledger ledger
		api := faulttest.NewInMemory(t, faulty(ledger.work(), 3*time.Second))
		shop := &shop{url: api.URL, client: &http.Client{Transport: &resilienthttp.Transport{Base: api.Transport()}}}
		require.NoError(t, shop.chargeAll(t.Context(), orders(n), 20))
		require.NoError(t, ledger.audit(n))
		require.Error(t, ledger.audit(n+1), "one was not charged")

		faults := map[any]bool{}
		for _, r := range api.Requests() {
			faults[r.Fault], faults[r.Status] = true, true
		}
		require.Subset(t, faults, map[any]bool{faulttest.ResetBeforeRead: true, faulttest.ResetAfterRead: true, http.StatusServiceUnavailable: true})
		api.AssertKeys(t, n)
	})
}

// If the Transport has no more attempts, the program repeats the call, and the API finds the order by its key.
func TestCharge_repeatedCallHasSameKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger ledger
		lose := faulttest.LoseResponse(ledger.work()) // more than the attempts of one call
		api := faulttest.NewInMemory(t, faulttest.Sequence(lose, lose, lose, lose, lose, lose.Handler))
		shop := &shop{url: api.URL, client: &http.Client{Transport: &resilienthttp.Transport{Base: api.Transport()}}}
		require.NoError(t, shop.charge(t.Context(), orders(1)[0]))
		assert.Positive(t, shop.repeated.Load())
		api.AssertKeys(t, 1)
		require.NoError(t, ledger.audit(1))
	})
}

func TestCallAgain(t *testing.T) {
	later := time.Now().Add(time.Hour)
	for name, row := range map[string]struct {
		err   error
		again bool
		at    time.Time // not before
	}{
		"breaker open":              {&resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen, NotBefore: later}, true, later},
		"no retries left":           {&resilienthttp.Error{Reason: resilienthttp.ErrMaxAttempts, Err: io.EOF}, true, time.Time{}},
		"permanent error":           {&resilienthttp.Error{Err: io.EOF}, false, time.Time{}},
		"first request in progress": {statusError(http.StatusConflict), true, time.Time{}},
		"declined":                  {statusError(http.StatusPaymentRequired), false, time.Time{}},
		"response truncated":        {io.ErrUnexpectedEOF, true, time.Time{}},
		"wrong receipt":             {errReceipt, false, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			at, again := callAgain(row.err)
			assert.Equal(t, row.again, again)
			assert.False(t, at.Before(row.at), "too early")
		})
	}
}
