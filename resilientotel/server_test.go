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
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// The disposition of a request is counted and is an attribute of its span.
func TestIdempotency(t *testing.T) {
	r := record()
	hooks := 0
	handler := idempotency.NewHandler(new(idempotency.Memory), func(*http.Request) (string, error) { return "shop", nil },
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	handler.Trace = r.TraceIdempotency(&idempotency.Trace{Done: func(*idempotency.Event) { hooks++ }})
	server := otelhttp.NewHandler(handler, "POST /charges", otelhttp.WithTracerProvider(r.TracerProvider), otelhttp.WithMeterProvider(r.MeterProvider))
	for _, key := range []string{"s3cr3t", "s3cr3t", ""} {
		req := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader("1"))
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		server.ServeHTTP(httptest.NewRecorder(), req)
	}
	require.Equal(t, 3, hooks)
	all := r.metrics(t)
	for disposition, want := range map[idempotency.Disposition]float64{idempotency.Executed: 1, idempotency.Replayed: 1, idempotency.Invalid: 1} {
		near(t, want, all["resilienthttp.server.idempotency.requests{resilienthttp.disposition="+string(disposition)+"}"], disposition)
	}
	tree := r.tree()
	require.Contains(t, tree, "resilienthttp.disposition=replayed resilienthttp.idempotency_key_hash=sha256:")
	require.NotContains(t, r.everything(t), "s3cr3t")

	// A message has no request. The caller's hooks may be nil.
	work := &idempotency.Executor{Store: new(idempotency.Memory), Trace: r.TraceIdempotency(nil)}
	_, err := work.Do(t.Context(), idempotency.ID{Scope: "shop", Operation: "mail", Key: "s3cr3t"}, idempotency.NewFingerprint(nil), func(context.Context) (idempotency.Result, error) { return idempotency.Result{}, nil })
	require.NoError(t, err)
	near(t, 2.0, r.metrics(t)["resilienthttp.server.idempotency.requests{resilienthttp.disposition=executed}"])
}

// dying is the store of a process that dies before the end of its work.
type dying struct{ idempotency.Store }

func (dying) Complete(context.Context, idempotency.Lease, idempotency.Outcome) error {
	return errors.New("died")
}

// A Sweeper finds the record of a dead process, and no client has repeated its request: the alert must
// not wait for one.
func TestIdempotency_sweeperFindsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := record(), new(idempotency.Memory)
		const unknown = "resilienthttp.server.idempotency.unknown{}"
		hooks := 0
		sweeper := &idempotency.Sweeper{Store: store, Trace: r.TraceIdempotency(&idempotency.Trace{Unknown: func(*idempotency.Event) { hooks++ }})}
		value, ok := r.metrics(t)[unknown]
		require.True(t, ok, "an increase needs a first value")
		require.Zero(t, value)
		dead := &idempotency.Executor{Store: dying{store}, Options: idempotency.Options{Lease: time.Second}}
		_, err := dead.Do(t.Context(), idempotency.ID{Scope: "shop", Operation: "charge", Key: "1"}, "v1:", func(context.Context) (idempotency.Result, error) {
			return idempotency.Result{}, nil
		})
		require.Error(t, err)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = sweeper.Run(ctx)
		require.Equal(t, 1, hooks)
		near(t, 1.0, r.metrics(t)[unknown])
	})
}

// psp is a Gateway. The payload of a send chooses its outcome.
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

// finding is a Gateway that is also a Finder, a Policy and a Protector.
type finding struct{ psp }

func (finding) Find(context.Context, *durable.Send) durable.Outcome {
	return durable.Outcome{Class: durable.ClassSucceeded}
}
func (finding) LimitsPerScope() bool                               { return true }
func (finding) Next(*durable.History, time.Time) durable.Decision  { return durable.Decision{Action: 7} }
func (finding) KeyPolicy() (keyTTL, visibilityDelay time.Duration) { return time.Hour, time.Minute }

// Intents are counted by state, and attempts by class and by at most 64 codes. Each send has a
// span. The hooks that the Engine had are called.
func TestDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		var changes atomic.Int64
		e := &durable.Engine{
			Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"psp": psp{}},
			Policy: durable.Schedule{Backoff: resilienthttp.Constant(time.Minute)}, // not at once
			Trace:  &durable.Trace{Changed: func(*durable.Change) { changes.Add(1) }},
		}
		r.Watch(e)
		r.Watch(e) // the second call does nothing
		enqueue := func(key, payload string, at time.Time) {
			_, err := e.Enqueue(t.Context(), durable.Intent{
				ID: idempotency.ID{Scope: "acme", Operation: "POST /charges", Key: "s3cr3t" + key}, Gateway: "psp", Payload: []byte(payload), NotBefore: at,
			})
			require.NoError(t, err)
		}
		all := r.metrics(t)
		require.Zero(t, all["resilienthttp.durable.oldest_due.age{}"])
		require.Contains(t, all, "resilienthttp.durable.intents{resilienthttp.state=pending}")
		enqueue("fine", "fine", time.Time{})
		for i := range 100 {
			enqueue(fmt.Sprint(i), fmt.Sprint("code-", i), time.Time{})
		}
		enqueue("panic", "panic", time.Time{})
		enqueue("later", "fine", time.Now().Add(time.Hour))
		time.Sleep(7 * time.Second)
		all = r.metrics(t)
		near(t, 103.0, all["resilienthttp.durable.intents{resilienthttp.state=pending}"])
		require.InDelta(t, 7, all["resilienthttp.durable.oldest_due.age{}"], 0.001)
		require.NoError(t, errOf(e.Work(t.Context(), 1000)))
		all = r.metrics(t)
		near(t, 1.0, all["resilienthttp.durable.intents{resilienthttp.state=done}"])
		near(t, 100.0, all["resilienthttp.durable.intents{resilienthttp.state=dead}"])
		near(t, 1.0, all["resilienthttp.durable.intents{resilienthttp.state=pending}"])
		near(t, 1.0, all["resilienthttp.durable.intents{resilienthttp.state=unknown}"])
		near(t, 1.0, all["resilienthttp.durable.attempts{resilienthttp.class=succeeded}"])
		near(t, 1.0, all["resilienthttp.durable.attempts{resilienthttp.class=unknown}"])
		near(t, 102.0, total(all, "resilienthttp.durable.attempts"))
		codes := 0
		for series := range all {
			if strings.HasPrefix(series, "resilienthttp.durable.attempts{resilienthttp.class=declined resilienthttp.code=code-") {
				codes++
			}
		}
		require.Equal(t, maxCodes, codes)
		near(t, float64(100-codes), all["resilienthttp.durable.attempts{resilienthttp.class=declined resilienthttp.code=_OTHER}"])
		require.GreaterOrEqual(t, changes.Load(), int64(103+102), "the Engine's own hook")
		r.allEnded(t)
		require.Len(t, r.spans.Ended(), 102)
		require.Contains(t, r.tree(), "internal durable send")
		require.Contains(t, r.tree(), "error.type=402 http.response.status_code=402 resilienthttp.attempt.number=1 resilienthttp.class=declined resilienthttp.code=code-")
		require.NotContains(t, r.everything(t), "s3cr3t")
		r.Unregister()
		require.NotContains(t, r.metrics(t), "resilienthttp.durable.oldest_due.age{}")
	})
}

// A held gateway has a series until it is released.
func TestDurable_gatewaysHeld(t *testing.T) {
	r := record()
	e := &durable.Engine{Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"psp": psp{}}}
	r.Watch(e)
	const series = "resilienthttp.durable.gateways.held{resilienthttp.gateway=psp resilienthttp.holder=person}"
	require.NotContains(t, r.metrics(t), series)
	require.NoError(t, e.Hold(t.Context(), "psp", time.Time{}, "ann", ""))
	near(t, 1.0, r.metrics(t)[series])
	near(t, 0.0, r.metrics(t)["resilienthttp.durable.dead_letters.in_doubt{}"])
	const provider = "resilienthttp.durable.gateways.held{resilienthttp.gateway=psp resilienthttp.holder=provider}"
	require.NoError(t, e.Store.SetHold(t.Context(), durable.Hold{Gateway: "psp", Scope: "a", Provider: true, Until: time.Now().Add(time.Hour)}))
	near(t, 1.0, r.metrics(t)[provider])
	require.NoError(t, e.Release(t.Context(), "psp", "ann"))
	require.NotContains(t, r.metrics(t), series)
	require.NotContains(t, r.metrics(t), provider)
	require.Equal(t, 7, e.Gateways["psp"].(interface{ Concurrency() int }).Concurrency(), "the Gateway's own number of workers")
}

// Concurrency is the Gateway's own number of workers.
func (psp) Concurrency() int { return 7 }

// A wrapped Gateway implements the same optional interfaces.
func TestDurable_optionalInterfaces(t *testing.T) {
	r := record()
	other := durable.Schedule{}
	e := &durable.Engine{Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"plain": psp{}, "finding": finding{}}}
	r.Watch(e)
	plain, able := e.Gateways["plain"], e.Gateways["finding"]
	_, finds := plain.(durable.Finder)
	require.False(t, finds)
	require.Equal(t, other, plain.(gateway).Policy)
	keyTTL, visibilityDelay := plain.(durable.Protector).KeyPolicy()
	require.Zero(t, keyTTL+visibilityDelay)
	require.Equal(t, durable.ClassSucceeded, able.(durable.Finder).Find(t.Context(), &durable.Send{}).Class)
	require.Equal(t, durable.Decision{Action: 7}, able.(durable.Policy).Next(nil, time.Time{}))
	keyTTL, _ = able.(durable.Protector).KeyPolicy()
	require.Equal(t, time.Hour, keyTTL)
	require.Contains(t, r.tree(), "durable find")
	require.True(t, able.(interface{ LimitsPerScope() bool }).LimitsPerScope())
	require.False(t, plain.(interface{ LimitsPerScope() bool }).LimitsPerScope())

	broken := &durable.Engine{Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"none": nil}}
	r.Watch(broken)
	require.ErrorIs(t, broken.Validate(), durable.ErrInvalid, "as without Watch")
}

// The collection returns the error of a store, and observes nothing.
func TestDurable_storeFails(t *testing.T) {
	r := record()
	r.Watch(&durable.Engine{}) // without a store
	var failed error
	require.NotPanics(t, func() { failed = r.collect(t.Context(), nil) })
	require.ErrorIs(t, failed, durable.ErrInvalid)
}

// The calls of a send have spans below that of the send. The key is in the header that the
// Transport uses, and in no other.
func TestDurable_overHTTP(t *testing.T) {
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
		require.NoError(t, errOf(e.Enqueue(t.Context(), durable.Intent{ID: idempotency.ID{Scope: "acme", Operation: "o", Key: "k"}, Gateway: "psp"})))
		require.NoError(t, errOf(e.Work(t.Context(), 0)))
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
