package durable_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
		logger := logTo(&log)
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
		enqueue(t, e, in)
		work(t, e, 0)
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
		work(t, e, 0)
		require.NoError(t, e.Resolve(t.Context(), seen(t, e, aborts.ID), durable.Outcome{Class: durable.ClassDeclined}, "SECRET-person"))
		addJob(t, e, durable.Filter{}, durable.Redrive{By: "SECRET-person", Note: "SECRET"})
		work(t, e, 0)
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
		work(t, e, 0)
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

// logTo logs all to a buffer, without the time.
func logTo(b *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// D26: the log, the journal and the span say the cause of a failed send, and not the mechanism that
// left the repetition to the Engine.
func TestCause(t *testing.T) {
	const dead = "http://127.0.0.1:1" // a port that is never given to a server: the one of a closed server may be
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/503":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/reset":
			panic(http.ErrAbortHandler)
		}
	}))
	defer failing.Close()
	failing.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	transport := &resilienthttp.Transport{Breaker: &resilienthttp.Breaker{FailureRatio: -1}}
	defer transport.CloseIdleConnections()
	open := &resilienthttp.Transport{Breaker: &resilienthttp.Breaker{MinRequests: 1, FailureRatio: 0.01, Cooldown: time.Hour, MaxWait: -1}, Scope: func(*http.Request) string { return "psp" }}
	defer open.CloseIdleConnections()
	if resp, err := (&http.Client{Transport: open}).Post(failing.URL+"/503", "", nil); err == nil {
		_ = resp.Body.Close()
	}
	for _, row := range []struct {
		name       string
		client     *http.Client
		url        string
		log, error string
	}{
		{"refused, through a Transport", &http.Client{Transport: transport}, dead + "/s3cr3t", "error.type=connection_refused class=failed", "connection refused"},
		{"refused, through net/http", &http.Client{}, dead + "/s3cr3t", "error.type=connection_refused class=failed", "connection refused"},
		{"reset, through a Transport", &http.Client{Transport: transport}, failing.URL + "/reset", "error.type=eof class=unknown", "EOF"},
		{"503", &http.Client{Transport: transport}, failing.URL + "/503", "http.response.status_code=503 error.type=503 class=unknown", ""},
		{"the circuit is open", &http.Client{Transport: open}, failing.URL + "/503", "error.type=breaker_open class=failed", "circuit breaker is open"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var log bytes.Buffer
			e := through(durable.HTTP{Client: row.client, NewRequest: func(s *durable.Send) (*http.Request, error) {
				return http.NewRequest(http.MethodPost, row.url, bytes.NewReader(s.Payload))
			}})
			e.Trace, e.Policy = durable.LogTrace(logTo(&log)), durable.Schedule{Backoff: resilienthttp.Constant(time.Minute)} // no second attempt here
			in := enqueuePay(t, e)
			work(t, e, 0)
			assert.Contains(t, log.String(), "event=send_failed")
			assert.Contains(t, log.String(), row.log)
			attempts := journal(t, e, in.ID)
			require.Len(t, attempts, 1)
			if row.error == "" {
				assert.Empty(t, attempts[0].Error)
			}
			assert.Contains(t, attempts[0].Error, row.error)
			for _, mechanism := range []string{"replayed", "single", "s3cr3t", "Post "} {
				assert.NotContains(t, attempts[0].Error, mechanism)
			}
		})
	}
}

// T15: the text of an error that a Base has made is neither stored nor logged.
func TestCause_ofBase(t *testing.T) {
	for _, cause := range []error{errors.New("s3cr3t"), slowError{"s3cr3t"}} {
		var log bytes.Buffer
		client := &http.Client{Transport: &resilienthttp.Transport{Base: brokenBase{cause}}}
		e := through(durable.HTTP{Client: client, NewRequest: func(s *durable.Send) (*http.Request, error) {
			return http.NewRequest(http.MethodPost, "http://psp.test/", bytes.NewReader(s.Payload))
		}})
		e.Trace, e.Policy = durable.LogTrace(logTo(&log)), durable.Schedule{Backoff: resilienthttp.Constant(time.Minute)}
		in := enqueuePay(t, e)
		work(t, e, 0)
		attempts := journal(t, e, in.ID)
		require.Len(t, attempts, 1)
		assert.Contains(t, attempts[0].Error, "(not shown)")
		assert.NotContains(t, attempts[0].Error+log.String(), "s3cr3t")
	}
}

// brokenBase is a Base that fails with an error of its own.
type brokenBase struct{ err error }

func (b brokenBase) RoundTrip(req *http.Request) (*http.Response, error) {
	_ = req.Body.Close()
	return nil, b.err
}

// slowError is a timeout of a Base.
type slowError struct{ text string }

func (s slowError) Error() string { return s.text }
func (slowError) Timeout() bool   { return true }

// D26: a hold of the Engine's own says which error caused it and when the next probe may be sent, and
// one of a person until when it lasts.
func TestHold_saysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome { return durable.Outcome{Err: io.ErrUnexpectedEOF} }))
		e.Trace = durable.LogTrace(logTo(&log))
		enqueue(t, e, several("comp1", 20)...)
		work(t, e, 20)
		holds := holdsOf(t, e)
		require.Len(t, holds, 1)
		assert.Equal(t, []string{"eof", "unexpected EOF"}, []string{holds[0].ErrorType, holds[0].Error})
		assert.WithinRange(t, holds[0].ProbeAt, time.Now(), time.Now().Add(100*time.Millisecond))
		assert.Contains(t, log.String(), "event=gateway_held gateway=psp holder=engine error.type=eof next_probe=")
		until := time.Now().Add(time.Hour).UTC()
		require.NoError(t, e.Hold(t.Context(), "psp", until, "ann", ""))
		assert.Contains(t, log.String(), "event=gateway_held gateway=psp holder=person until="+until.Format("2006-01-02T15:04:05.000Z"))
	})
}

// D26: an intent in doubt that the provider then declined says from when the decline counts.
func TestDeclineCountsFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		sends := 0
		e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
			if sends++; sends == 1 {
				return durable.Outcome{Status: http.StatusBadGateway}
			}
			return durable.Outcome{Class: durable.ClassDeclined, Status: http.StatusPaymentRequired}
		}))
		e.Trace, e.VisibilityDelay = durable.LogTrace(logTo(&log)), time.Hour
		e.Policy = durable.Schedule{Backoff: resilienthttp.Constant(time.Minute)}
		in := enqueuePay(t, e)
		work(t, e, 0)
		record := find(t, e, in.ID)
		first := record.LastSentAt
		require.Zero(t, e.DeclineCountsFrom(&record), "in doubt, and not declined")
		time.Sleep(2 * time.Minute)
		work(t, e, 0)
		record = find(t, e, in.ID)
		require.Equal(t, durable.StateUnknown, record.State)
		from := first.Add(time.Hour)
		require.Equal(t, from, e.DeclineCountsFrom(&record))
		require.Contains(t, log.String(), "error.type=402 class=declined decline_counts_from="+from.Format("2006-01-02T15:04:05.000Z"))
		time.Sleep(2 * time.Hour)
		work(t, e, 0)
		record = find(t, e, in.ID)
		require.Equal(t, durable.StateDead, record.State)
		require.Zero(t, e.DeclineCountsFrom(&record))
		require.Zero(t, (&durable.Engine{Store: e.Store}).DeclineCountsFrom(&record), "an Engine without the gateway")
	})
}
