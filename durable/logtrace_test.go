package durable_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// D13: payload, result, answer and error text are in no record, and keys are hashed; each
// record has batch and row.
func TestLogTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			switch {
			case strings.Contains(string(body), "boom"):
				panic(http.ErrAbortHandler)
			case strings.Contains(string(body), "mended"):
			default:
				w.WriteHeader(http.StatusUnprocessableEntity)
			}
			_, _ = io.WriteString(w, "SECRET answer")
		}))
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		h := durable.HTTP{
			Client: &http.Client{Transport: &resilienthttp.Transport{Base: server.Transport(), Trace: resilienthttp.LogTrace(logger)}}, NewRequest: post(server.URL),
			Read: func(resp *http.Response, body []byte) durable.Outcome {
				if resp.StatusCode == http.StatusOK {
					return durable.Outcome{Reference: "ch_SECRET", Result: body}
				}
				return durable.Outcome{Code: "amount_too_small", Result: body, Err: errors.New("SECRET error")}
			},
		}
		e := through(h)
		e.Gateways["panics"] = gatewayFunc(func(context.Context, *durable.Send) durable.Outcome { panic(errors.New("SECRET panic")) })
		e.Trace = durable.LogTrace(logger)
		e.Policy = policyFunc(func(*durable.History, time.Time) durable.Decision { return durable.Decision{Action: durable.Bury} })
		in := pay("SECRET-tenant", "SECRET-key")
		in.Payload, in.Batch, in.Row = []byte("SECRET payload"), "invoices", 5
		work := func() {
			work(t, e, 0)
		}
		enqueue(t, e, in)
		work()
		line := "event=row_processed_error batch=invoices row_number=5 idempotency_key_hash=sha256:"
		assert.Contains(t, log.String(), line)
		assert.Contains(t, log.String(), "state=dead attempts=1 http.response.status_code=422 error.type=422 class=declined code=amount_too_small reason=declined")
		_, hash, _ := strings.Cut(log.String(), line)
		hash, _, _ = strings.Cut(hash, " ")
		assert.GreaterOrEqual(t, strings.Count(log.String(), hash), 3)
		assert.Contains(t, log.String(), " idempotency_key_hash=sha256:"+hash, "the Transport's records bear the same")

		mended, aborts, panics, withdrawn := in, in, in, in
		mended.Payload, aborts.Key, panics.Key, withdrawn.Key = []byte("SECRET, mended"), "SECRET-boom", "SECRET-panic", "SECRET-withdrawn"
		aborts.Payload, panics.Gateway = []byte("SECRET boom"), "panics"
		enqueue(t, e, mended, aborts, panics)
		work()
		require.NoError(t, e.Resolve(t.Context(), seen(t, e, aborts.ID), durable.Outcome{Class: durable.ClassDeclined}, "SECRET-person"))
		addJob(t, e, durable.Filter{}, durable.Redrive{By: "SECRET-person", Note: "SECRET"})
		work()
		enqueue(t, e, withdrawn)
		require.NoError(t, e.Cancel(t.Context(), withdrawn.ID))
		require.NoError(t, e.Erase(t.Context(), withdrawn.ID, "SECRET-person"))
		for _, event := range []string{"accepted", "revised", "sending", "processed", "processed_error", "redriven", "resolved", "canceled", "erased"} {
			assert.Contains(t, log.String(), "event=row_"+event+" batch=invoices row_number=5 idempotency_key_hash=sha256:")
		}
		assert.Contains(t, log.String(), `event=engine_error error="durable: the gateway \"panics\" panicked: *errors.errorString"`)
		assert.NotContains(t, log.String(), "SECRET")
		other := pay("SECRET-tenant", "SECRET-other")
		enqueue(t, e, other)
		work()
		require.NoError(t, e.Hold(t.Context(), "psp", time.Time{}, "SECRET-person", "SECRET note"))
		require.NoError(t, e.Release(t.Context(), "psp", "SECRET-person"))
		for _, record := range []string{
			"event=intent_enqueued idempotency_key_hash=", "event=send_started", "level=ERROR msg=\"durable intent_dead\"",
			"level=WARN msg=\"durable gateway_held\" event=gateway_held gateway=psp holder=person", "event=gateway_released gateway=psp",
		} {
			assert.Contains(t, log.String(), record)
		}
		assert.NotContains(t, log.String(), "SECRET")
		assert.NotRegexp(t, `(?m) [a-z_.]+=(""|0|0001-01-01T00:00:00\.000Z)?( |$)`, log.String(), "no empty field")
		for i := range 3 {
			assert.NotContains(t, log.String(), durable.IdempotencyKey(in.ID, i+1))
		}
	})
}
