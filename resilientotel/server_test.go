package resilientotel

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// TestIdempotency: what was done with a request is counted, and told to its span.
func TestIdempotency(t *testing.T) {
	r := record()
	told := 0
	handler := idempotency.NewHandler(new(idempotency.Memory), func(*http.Request) (string, error) { return "shop", nil },
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	handler.Trace = r.TraceIdempotency(&idempotency.Trace{Done: func(*idempotency.Event) { told++ }})
	server := otelhttp.NewHandler(handler, "POST /charges", otelhttp.WithTracerProvider(r.TracerProvider), otelhttp.WithMeterProvider(r.MeterProvider))
	for _, key := range []string{"s3cr3t", "s3cr3t", ""} {
		req := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader("1"))
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		server.ServeHTTP(httptest.NewRecorder(), req)
	}
	require.Equal(t, 3, told)
	all := r.metrics(t)
	for disposition, want := range map[idempotency.Disposition]float64{idempotency.Executed: 1, idempotency.Replayed: 1, idempotency.Invalid: 1} {
		near(t, want, all["resilienthttp.server.idempotency.requests{disposition="+string(disposition)+"}"], disposition)
	}
	tree := r.tree()
	require.Contains(t, tree, "resilienthttp.disposition=replayed resilienthttp.idempotency_key_hash=sha256:")
	require.NotContains(t, r.everything(t), "s3cr3t")

	// Messages have no request, and no hooks beside ours are needed.
	work := &idempotency.Executor{Store: new(idempotency.Memory), Trace: r.TraceIdempotency(nil)}
	_, err := work.Do(t.Context(), idempotency.ID{Scope: "shop", Operation: "mail", Key: "s3cr3t"}, idempotency.NewFingerprint(nil), func(context.Context) (idempotency.Result, error) { return idempotency.Result{}, nil })
	require.NoError(t, err)
	near(t, 2.0, r.metrics(t)["resilienthttp.server.idempotency.requests{disposition=executed}"])
}

// psp is a Gateway that gives each send what its payload asks for.
type psp struct{}

func (psp) Send(_ context.Context, s *durable.Send) durable.Outcome {
	switch text := string(s.Payload); text {
	case "fine":
		return durable.Outcome{Class: durable.ClassSucceeded, Status: 201}
	case "panic":
		panic("boom")
	default:
		return durable.Outcome{Class: durable.ClassDeclined, Code: text, Status: 402, Err: errors.New("s3cr3t")}
	}
}

// finding is one that can be asked, has a Policy, and knows how long its keys protect.
type finding struct{ psp }

func (finding) Find(context.Context, *durable.Send) durable.Outcome {
	return durable.Outcome{Class: durable.ClassSucceeded}
}
func (finding) Next(*durable.History, time.Time) durable.Decision { return durable.Decision{Action: 7} }
func (finding) KeyPolicy() (keyLife, settles time.Duration)       { return time.Hour, time.Minute }

// TestDurable: intents are counted by state, attempts by what came of them, at most 64
// codes by name; each send is a span; and the hooks that were there are called.
func TestDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		var changes atomic.Int64
		e := &durable.Engine{
			Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"psp": psp{}},
			Policy: durable.Schedule{Backoff: resilienthttp.Constant(time.Minute)}, // not at once, by chance
			Trace:  &durable.Trace{Changed: func(*driver.Change) { changes.Add(1) }},
		}
		r.Watch(e)
		r.Watch(e) // which is once
		enqueue := func(key, payload string, at time.Time) {
			_, err := e.Enqueue(t.Context(), durable.Intent{
				ID: idempotency.ID{Scope: "acme", Operation: "POST /charges", Key: "s3cr3t" + key}, Gateway: "psp", Payload: []byte(payload), NotBefore: at,
			})
			require.NoError(t, err)
		}
		all := r.metrics(t)
		require.Zero(t, all["resilienthttp.durable.oldest_due{}"])
		require.Contains(t, all, "resilienthttp.durable.intents{state=pending}")
		enqueue("fine", "fine", time.Time{})
		for i := range 100 {
			enqueue(fmt.Sprint(i), fmt.Sprint("code-", i), time.Time{})
		}
		enqueue("panic", "panic", time.Time{})
		enqueue("later", "fine", time.Now().Add(time.Hour))
		time.Sleep(7 * time.Second)
		all = r.metrics(t)
		near(t, 103.0, all["resilienthttp.durable.intents{state=pending}"])
		require.InDelta(t, 7, all["resilienthttp.durable.oldest_due{}"], 0.001)
		_, err := e.Work(t.Context(), 1000)
		require.NoError(t, err)
		all = r.metrics(t)
		near(t, 1.0, all["resilienthttp.durable.intents{state=done}"])
		near(t, 100.0, all["resilienthttp.durable.intents{state=dead}"])
		near(t, 1.0, all["resilienthttp.durable.intents{state=pending}"])
		near(t, 1.0, all["resilienthttp.durable.intents{state=unknown}"])
		near(t, 1.0, all["resilienthttp.durable.attempts{class=succeeded}"])
		near(t, 1.0, all["resilienthttp.durable.attempts{class=unknown}"])
		near(t, 102.0, total(all, "resilienthttp.durable.attempts"))
		codes := 0
		for series := range all {
			if strings.HasPrefix(series, "resilienthttp.durable.attempts{class=declined code=code-") {
				codes++
			}
		}
		require.Equal(t, mostCodes, codes)
		near(t, float64(100-codes), all["resilienthttp.durable.attempts{class=declined code=_OTHER}"])
		require.GreaterOrEqual(t, changes.Load(), int64(103+102), "theirs is told too")
		r.allEnded(t)
		require.Len(t, r.spans.Ended(), 102)
		require.Contains(t, r.tree(), "internal durable send")
		require.Contains(t, r.tree(), "resilienthttp.class=declined resilienthttp.code=code-")
		require.NotContains(t, r.everything(t), "s3cr3t")
		r.Unregister()
		require.NotContains(t, r.metrics(t), "resilienthttp.durable.oldest_due{}")
	})
}

// TestDurable_gatewaysHeld: a held gateway is a series until it is released.
func TestDurable_gatewaysHeld(t *testing.T) {
	r := record()
	e := &durable.Engine{Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"psp": psp{}}}
	r.Watch(e)
	const series = "resilienthttp.durable.gateways.held{gateway=psp holder=person}"
	require.NotContains(t, r.metrics(t), series)
	require.NoError(t, e.Hold(t.Context(), "psp", time.Time{}, "ann", ""))
	near(t, 1.0, r.metrics(t)[series])
	require.NoError(t, e.Release(t.Context(), "psp", "ann"))
	require.NotContains(t, r.metrics(t), series)
	require.Equal(t, 7, e.Gateways["psp"].(interface{ Concurrency() int }).Concurrency(), "the Gateway's own number of workers")
}

// Concurrency is the Gateway's own number of workers.
func (psp) Concurrency() int { return 7 }

// TestDurableGateways: what a Gateway can beside sending, it still can.
func TestDurableGateways(t *testing.T) {
	r := record()
	other := durable.Schedule{}
	e := &durable.Engine{Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"plain": psp{}, "finding": finding{}}}
	r.Watch(e)
	plain, able := e.Gateways["plain"], e.Gateways["finding"]
	_, finds := plain.(durable.Finder)
	require.False(t, finds)
	require.Equal(t, other, plain.(gateway).Policy)
	keyLife, settles := plain.(durable.Protector).KeyPolicy()
	require.Zero(t, keyLife+settles)
	require.Equal(t, durable.ClassSucceeded, able.(durable.Finder).Find(t.Context(), &durable.Send{}).Class)
	require.Equal(t, durable.Decision{Action: 7}, able.(durable.Policy).Next(nil, time.Time{}))
	keyLife, _ = able.(durable.Protector).KeyPolicy()
	require.Equal(t, time.Hour, keyLife)
	require.Contains(t, r.tree(), "durable find")

	broken := &durable.Engine{Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"none": nil}}
	r.Watch(broken)
	require.ErrorIs(t, broken.Validate(), durable.ErrInvalid, "as without")
}

// TestDurableStoreThatFails: it is told to OpenTelemetry, and nothing false is.
func TestDurableStoreThatFails(t *testing.T) {
	r := record()
	r.Watch(&durable.Engine{}) // without a store
	var failed error
	require.NotPanics(t, func() { failed = r.collect(t.Context(), nil) })
	require.ErrorIs(t, failed, durable.ErrInvalid)
}

// TestDurableOverHTTP: the calls of a send are under its span, and its key goes where the
// Transport puts keys, and nowhere else.
func TestDurableOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		var sent http.Header
		client := &http.Client{Transport: r.Wrap(&resilienthttp.Transport{
			Idempotency: resilienthttp.Idempotency{Header: "X-Request-Key"},
			Base: roundTripper(func(req *http.Request) (*http.Response, error) {
				sent = req.Header
				return respond(req, 200), nil
			}),
		})}
		e := &durable.Engine{Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"psp": durable.HTTP{
			Client: client, NewRequest: func(*durable.Send) (*http.Request, error) {
				return http.NewRequest(http.MethodPost, "http://api.test/charges", nil)
			},
		}}}
		r.Watch(e)
		_, err := e.Enqueue(t.Context(), durable.Intent{ID: idempotency.ID{Scope: "acme", Operation: "o", Key: "k"}, Gateway: "psp"})
		require.NoError(t, err)
		_, err = e.Work(t.Context(), 0)
		require.NoError(t, err)
		require.NotEmpty(t, sent.Get("X-Request-Key"))
		require.Empty(t, sent.Get("Idempotency-Key"))
		var kinds []string
		parents := map[trace.SpanID]string{}
		for _, s := range r.spans.Started() {
			kinds = append(kinds, parents[s.Parent().SpanID()]+s.Name())
			parents[s.SpanContext().SpanID()] = s.Name() + " > "
		}
		require.Equal(t, []string{"durable send", "durable send > call POST", "call POST > HTTP POST"}, kinds)
	})
}
