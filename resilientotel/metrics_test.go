package resilientotel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// T4: the number of series is bounded for any hosts, ports, scopes, methods and buckets.
func TestCardinality(t *testing.T) {
	const limit, hosts = 10, 300
	synctest.Test(t, func(t *testing.T) {
		r := record()
		r.MaxScopes = limit
		n := 0
		rt := r.Wrap(&resilienthttp.Transport{Policy: resilienthttp.Policy{MaxAttempts: -1}, Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			n++
			return respond(req, 200, "X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "7", "X-RateLimit-Reset", "60", "X-RateLimit-Bucket", fmt.Sprint("bucket-", n)), nil
		})})
		for i := range hosts {
			for _, to := range []string{fmt.Sprintf("http://host-%d.test/%d", i, i), fmt.Sprintf("https://one.test:%d/", 1000+i)} {
				req := get(t, t.Context(), to)
				req.Method = fmt.Sprint("METHOD", i)
				require.NoError(t, called(t, rt, req))
			}
		}
		all := r.metrics(t)
		for name, want := range map[string]int{
			"http.client.request.duration": limit + 1, "http.client.request.body.size": limit + 1, "resilienthttp.client.call.duration": limit + 1,
			"resilienthttp.client.active_attempts": limit + 1, "resilienthttp.client.breaker.state": limit + 1, "resilienthttp.client.retry_budget.remaining": limit + 1,
		} {
			require.Equal(t, want, seriesOf(all, name), name)
		}
		require.LessOrEqual(t, seriesOf(all, "resilienthttp.client.quota.remaining"), (limit+1)*(maxBuckets+1))
		require.Contains(t, all, "resilienthttp.client.active_attempts{resilienthttp.scope=_OTHER}")
		near(t, float64(2*hosts), total(all, "#http.client.request.duration"), "all are counted")
		near(t, float64(2*hosts), total(all, "#resilienthttp.client.call.duration"))
	})
}

// T17: the duration of calls is by upstream: three on one address are three series, by port or by
// scope. Many scopes of one host are as bounded as many hosts.
func TestCallDuration_upstreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		r.MaxScopes = 5
		base := script(answer{status: 200})
		byHost := r.Wrap(&resilienthttp.Transport{Base: base})
		byPath := r.Wrap(&resilienthttp.Transport{Base: base, Scope: func(req *http.Request) string { return req.URL.Path }})
		for _, port := range []string{"8001", "8002"} {
			require.NoError(t, called(t, byHost, get(t, t.Context(), "http://127.0.0.1:"+port+"/charges")))
		}
		require.NoError(t, called(t, byPath, get(t, t.Context(), "http://127.0.0.1:8001/search")))
		all := r.metrics(t)
		for _, series := range []string{"resilienthttp.scope=127.0.0.1:8001 server.address=127.0.0.1 server.port=8001",
			"resilienthttp.scope=127.0.0.1:8002 server.address=127.0.0.1 server.port=8002", "resilienthttp.scope=/search server.address=127.0.0.1 server.port=8001"} {
			near(t, 1.0, all["#resilienthttp.client.call.duration{http.request.method=GET resilienthttp.outcome=success "+series+"}"], series)
		}
		for i := range 50 {
			require.NoError(t, called(t, byPath, get(t, t.Context(), fmt.Sprintf("http://127.0.0.1:%d/%d", 9000+i%7, i))))
		}
		require.Equal(t, 5+1, seriesOf(r.metrics(t), "#resilienthttp.client.call.duration"))
	})
}

func TestMaxScopes(t *testing.T) {
	for most, want := range map[int]int{0: 101, -1: 150, 7: 8} {
		synctest.Test(t, func(t *testing.T) {
			r := record()
			r.MaxScopes = most
			rt := r.Wrap(&resilienthttp.Transport{Base: script(answer{status: 200})})
			for i := range 150 {
				require.NoError(t, called(t, rt, get(t, t.Context(), fmt.Sprintf("http://host-%d.test/", i))))
			}
			require.Equal(t, want, seriesOf(r.metrics(t), "resilienthttp.client.active_attempts"), most)
		})
	}
}

// T8: metrics, State, Trace and Budget agree about the same calls.
func TestNumbersAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		var seen struct {
			sync.Mutex
			calls, attempts, retries, rejected, denied, hedges, changes int
			queueWait, retryWait, latency                               time.Duration
		}
		// No 429: in the minute after one, no hedges are sent.
		statuses := []int{200, 503, 200, 500, 200, 425, 200, 200, 404, 200, 503, 503}
		n := 0
		tr := &resilienthttp.Transport{
			Base: roundTripper(func(req *http.Request) (*http.Response, error) {
				seen.Lock()
				n++
				status := statuses[n%len(statuses)]
				slow := n%17 == 0
				if req.URL.Host == "down.test" {
					status = 500
				}
				seen.Unlock()
				if slow {
					select {
					case <-time.After(5 * time.Second):
					case <-req.Context().Done():
						return nil, req.Context().Err()
					}
				}
				return respond(req, status), nil
			}),
			Hedge: &resilienthttp.Hedge{Delay: time.Second, MaxRatio: -1}, RateLimit: &resilienthttp.RateLimit{Limit: 30, Burst: 1},
			Breaker: &resilienthttp.Breaker{MinRequests: 10, MaxWait: 2 * time.Second},
			Trace: &resilienthttp.Trace{
				AttemptDone:   func(a *resilienthttp.Attempt) { seen.Lock(); seen.attempts++; seen.Unlock() },
				Rejected:      func(*resilienthttp.Call) { seen.Lock(); seen.rejected++; seen.Unlock() },
				BreakerChange: func(resilienthttp.BreakerChange) { seen.Lock(); seen.changes++; seen.Unlock() },
				CallDone: func(c *resilienthttp.Call) {
					seen.Lock()
					defer seen.Unlock()
					queueWait, _, retryWait := c.Timings()
					seen.calls, seen.queueWait, seen.retryWait, seen.latency = seen.calls+1, seen.queueWait+queueWait, seen.retryWait+retryWait, seen.latency+c.Latency
					for i, a := range c.Attempts {
						switch {
						case a.Hedge:
							seen.hedges++
						case i > 0:
							seen.retries++
						}
						if a.StopReason != nil {
							seen.denied++
						}
					}
				},
			},
		}
		rt := r.Wrap(tr)
		var wg sync.WaitGroup
		for i := range 120 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				host := "up.test"
				if i%4 == 0 {
					host = "down.test"
				}
				if i%8 == 0 { // an open circuit rejects it at once
					ctx = resilienthttp.WithSingleAttempt(ctx)
				}
				err := called(t, rt, get(t, ctx, "http://"+host+"/"))
				if err != nil {
					_, ok := errors.AsType[*resilienthttp.Error](err)
					require.True(t, ok)
				}
			})
			if i%6 == 5 { // the last of six calls waits for those before it
				time.Sleep(600 * time.Millisecond)
			}
		}
		wg.Wait()
		synctest.Wait()
		all, state := r.metrics(t), tr.State()
		for name, want := range map[string]float64{
			"#resilienthttp.client.call.duration": float64(seen.calls), "#http.client.request.duration": float64(seen.attempts),
			"resilienthttp.client.call.duration": seen.latency.Seconds(), "resilienthttp.client.retries": float64(seen.retries),
			"resilienthttp.client.rejections": float64(seen.rejected), "resilienthttp.client.retries.denied": float64(seen.denied),
			"resilienthttp.client.hedges": float64(seen.hedges), "resilienthttp.client.breaker.transitions": float64(seen.changes),
			"resilienthttp.client.wait.duration": (seen.queueWait + seen.retryWait).Seconds(), "resilienthttp.client.active_attempts": 0,
		} {
			near(t, want, total(all, name), name)
			if name != "resilienthttp.client.active_attempts" {
				require.Positive(t, want, "%s: the test proves nothing", name)
			}
		}
		require.Equal(t, 120, seen.calls)
		outcome := func(scope, name string) (n int) {
			for series, calls := range all {
				if strings.HasPrefix(series, "#"+metricCallDuration) && strings.Contains(series, "outcome="+name+" resilienthttp.scope="+scope+" ") {
					n += int(calls)
				}
			}
			return n
		}
		for _, s := range state.Scopes {
			of := s.Responses
			failed := of.ClientErrors + of.ServerErrors + of.NetworkErrors + of.Timeouts
			require.Equal(t, outcome(s.Scope, "permanent_error")+outcome(s.Scope, "failed")+outcome(s.Scope, "timeout"), failed)
			require.Equal(t, outcome(s.Scope, "rejected"), of.Rejected)
			require.Equal(t, outcome(s.Scope, "success"), of.Calls-of.Rejected-failed)
			scope := "{resilienthttp.scope=" + s.Scope + "}"
			near(t, float64(s.Breaker.State), all["resilienthttp.client.breaker.state"+scope])
			near(t, s.Budget.Remaining, all["resilienthttp.client.retry_budget.remaining"+scope])
			for _, q := range s.Quotas {
				near(t, float64(q.Remaining), all["resilienthttp.client.quota.remaining{resilienthttp.quota.bucket="+q.Bucket+" resilienthttp.scope="+s.Scope+"}"])
			}
		}
		require.Equal(t, []string{"down.test", "up.test"}, []string{state.Scopes[0].Scope, state.Scopes[1].Scope})
		require.Positive(t, all["resilienthttp.client.wait.duration{resilienthttp.scope=up.test resilienthttp.wait.cause=fixed_limit}"])
		require.Positive(t, all["resilienthttp.client.wait.duration{resilienthttp.scope=up.test resilienthttp.wait.cause=backoff}"])
		require.Positive(t, all["resilienthttp.client.wait.duration{resilienthttp.scope=down.test resilienthttp.wait.cause=circuit}"])
		require.Zero(t, all["resilienthttp.client.wait.duration{resilienthttp.scope=up.test resilienthttp.wait.cause=quota}"])
		spans := 0
		for _, s := range r.spans.Ended() {
			if s.SpanKind().String() == "client" {
				spans++
			}
		}
		require.Equal(t, seen.attempts, spans)
	})
}

func TestHedgesRetriesAndWaits(t *testing.T) {
	const s = time.Second
	unavailable := answer{status: 503}
	for _, row := range []struct {
		name      string
		transport *resilienthttp.Transport
		base      *scripted
		cancel    time.Duration // of the last call; 0: no
		calls     int
		want      map[string]float64
	}{
		{"hedge is first: won", &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: s}}, script(answer{after: 5 * s, status: 200}, answer{status: 200}), 0, 1,
			map[string]float64{"hedges{resilienthttp.hedge.won=true resilienthttp.scope=api.test:8443}": 1}},
		{
			"hedge is second: lost", &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: s}}, script(answer{after: 2 * s, status: 200}, answer{after: 5 * s, status: 200}), 0, 1,
			map[string]float64{"hedges{resilienthttp.hedge.won=false resilienthttp.scope=api.test:8443}": 1},
		},
		{"retry after a hedge: the reason is the attempt's", &resilienthttp.Transport{Hedge: &resilienthttp.Hedge{Delay: s}, Policy: every(s)},
			script(answer{after: 2 * s, status: 502}, answer{after: 2 * s, status: 503}, answer{status: 200}), 0, 1,
			map[string]float64{
				"hedges{resilienthttp.hedge.won=false resilienthttp.scope=api.test:8443}": 1, "retries{resilienthttp.retry.reason=502 resilienthttp.scope=api.test:8443}": 1,
				"wait.duration{resilienthttp.scope=api.test:8443 resilienthttp.wait.cause=backoff}": 2, // with the second of the hedge
			}},
		{"hedge on a slow attempt: hedge_slow_attempt", &resilienthttp.Transport{}, script(answer{after: time.Hour}, answer{status: 200}), time.Minute, 1,
			map[string]float64{"retries{resilienthttp.retry.reason=hedge_slow_attempt resilienthttp.scope=api.test:8443}": 1}},
		{
			"error: its error.type", &resilienthttp.Transport{Policy: every(s)}, script(answer{err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, answer{status: 200}), 0, 1,
			map[string]float64{"retries{resilienthttp.retry.reason=connection_refused resilienthttp.scope=api.test:8443}": 1, "wait.duration{resilienthttp.scope=api.test:8443 resilienthttp.wait.cause=backoff}": 1},
		},
		{
			"canceled in the queue for RateLimit.Limit: fixed_limit", &resilienthttp.Transport{RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1}}, script(answer{status: 200}), 3 * s, 2,
			map[string]float64{"wait.duration{resilienthttp.scope=api.test:8443 resilienthttp.wait.cause=fixed_limit}": 3},
		},
		{"canceled in the queue for a quota: quota", &resilienthttp.Transport{},
			script(answer{status: 200, header: []string{"X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"}}), 3 * s, 2,
			map[string]float64{"wait.duration{resilienthttp.scope=api.test:8443 resilienthttp.wait.cause=quota}": 3}},
		{
			"retry in the queue: backoff and fixed_limit", &resilienthttp.Transport{RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1}, Policy: every(s)}, script(unavailable, answer{status: 200}), 0, 1,
			map[string]float64{
				"retries{resilienthttp.retry.reason=503 resilienthttp.scope=api.test:8443}": 1, "wait.duration{resilienthttp.scope=api.test:8443 resilienthttp.wait.cause=backoff}": 1,
				"wait.duration{resilienthttp.scope=api.test:8443 resilienthttp.wait.cause=fixed_limit}": 9,
			},
		},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			r := record()
			row.transport.Base, row.transport.Breaker = row.base, never()
			rt := r.Wrap(row.transport)
			for i := range row.calls {
				ctx := t.Context()
				if row.cancel > 0 && i == row.calls-1 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithCancel(ctx)
					time.AfterFunc(row.cancel, cancel)
				}
				_ = called(t, rt, get(t, ctx, url))
			}
			got := map[string]float64{}
			for series, v := range r.metrics(t) {
				series, of := strings.CutPrefix(series, "resilienthttp.client.")
				if of && (strings.HasPrefix(series, "retries") || strings.HasPrefix(series, "hedges") || strings.HasPrefix(series, "wait.")) {
					got[series] = v
				}
			}
			require.Len(t, got, len(row.want), "%v", got)
			for series, want := range row.want {
				near(t, want, got[series], series)
			}
		})
	}
}

func TestScopeSum(t *testing.T) {
	buckets, sum := &names{limit: maxBuckets}, scopeSum{}
	for _, state := range []resilienthttp.BreakerState{resilienthttp.StateClosed, resilienthttp.StateOpen, resilienthttp.StateHalfOpen} {
		sum.add(&resilienthttp.ScopeState{Breaker: resilienthttp.BreakerStatus{State: state}}, buckets)
	}
	require.EqualValues(t, resilienthttp.StateOpen, sum.breaker, "the worst state")
}

// A Transport in the Base of another one does not add to the call of the outer one.
func TestTransportInBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer, inner := record(), record()
		inside := &resilienthttp.Transport{Base: script(answer{status: 200}), RateLimit: &resilienthttp.RateLimit{Limit: 0.1, Burst: 1}}
		inner.Wrap(inside)
		rt := outer.Wrap(&resilienthttp.Transport{Base: inside})
		for range 2 {
			require.NoError(t, called(t, rt, get(t, t.Context(), url)))
		}
		require.NotContains(t, outer.tree(), "* queued")
		near(t, 2, total(inner.metrics(t), "#resilienthttp.client.call.duration"))
	})
}

// inBackground makes a call and ignores the result.
func inBackground(t *testing.T, rt http.RoundTripper, to string) {
	t.Helper()
	req := get(t, t.Context(), to)
	go func() {
		if resp, err := rt.RoundTrip(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
}

// Of a scope of several Transports, the active attempts are added up, and the worst of the rest
// is exported.
func TestSeveralTransports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		healthy := r.Wrap(&resilienthttp.Transport{Base: script(answer{after: time.Second, status: 200, header: []string{"X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "7", "X-RateLimit-Reset", "3600"}})})
		failing := r.Wrap(&resilienthttp.Transport{
			Base:   script(answer{after: time.Second, status: 500, header: []string{"X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "4", "X-RateLimit-Reset", "3600"}}),
			Policy: resilienthttp.Policy{MaxAttempts: -1}, Breaker: &resilienthttp.Breaker{MinRequests: 1, FailureRatio: 0.01, Cooldown: time.Second}, Budget: &resilienthttp.Budget{Ratio: -1},
		})
		for _, rt := range []http.RoundTripper{healthy, failing} {
			inBackground(t, rt, "http://api.test/")
		}
		time.Sleep(500 * time.Millisecond)
		near(t, 2.0, r.metrics(t)["resilienthttp.client.active_attempts{resilienthttp.scope=api.test}"])
		time.Sleep(time.Second)
		all := r.metrics(t)
		near(t, 2.0, all["resilienthttp.client.breaker.state{resilienthttp.scope=api.test}"])
		near(t, 1.0, all["resilienthttp.client.breaker.transitions{resilienthttp.breaker.to=open resilienthttp.scope=api.test}"])
		left := slices.Collect(func(yield func(float64) bool) {
			for series, v := range all {
				if strings.HasPrefix(series, "resilienthttp.client.quota.remaining") && !yield(v) {
					return
				}
			}
		})
		require.Equal(t, []float64{4}, left)
		remaining, known := all["resilienthttp.client.retry_budget.remaining{resilienthttp.scope=api.test}"]
		require.True(t, known && remaining >= 0, "the budget with a limit")
	})
}

// T12: rejections are counted by reason and priority. The limit, the active requests and the
// queue of a Shedder are gauges. The span of a rejected request has the reason.
func TestAdmission(t *testing.T) {
	r, hooks := record(), 0
	quota := &admission.Quota{
		Limit: 2, Key: func(*http.Request) (string, error) { return "s3cr3t", nil },
		Trace: r.TraceAdmission(&admission.Trace{Rejected: func(*admission.Event) { hooks++ }}),
	}
	server := otelhttp.NewHandler(quota.Handler(http.NotFoundHandler()), "GET /", otelhttp.WithTracerProvider(r.TracerProvider), otelhttp.WithMeterProvider(r.MeterProvider))
	for range 5 {
		server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}
	require.Equal(t, 3, hooks)

	shedder := &admission.Shedder{
		Initial: 1, Min: 1, Max: 1, Queue: -1, MaxWait: -1,
		Priority: func(*http.Request) resilienthttp.Priority { return resilienthttp.PriorityBatch },
	}
	r.WatchShedder("front", shedder)
	r.WatchShedder("front", &admission.Shedder{Initial: 7})
	r.WatchShedder("uploads", &admission.Shedder{Initial: 7})
	gate := http.Handler(nil)
	gate = shedder.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		gate.ServeHTTP(httptest.NewRecorder(), req) // no permit is free
		near(t, 1, r.metrics(t)["resilienthttp.admission.active_requests{resilienthttp.shedder.name=front}"])
		near(t, 0, r.metrics(t)["resilienthttp.admission.queued_requests{resilienthttp.shedder.name=front}"])
	}))
	gate.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))

	all := r.metrics(t)
	near(t, 3, all["resilienthttp.admission.rejections{resilienthttp.priority=default resilienthttp.rejection.reason=quota_exceeded}"])
	near(t, 1, all["resilienthttp.admission.rejections{resilienthttp.priority=batch resilienthttp.rejection.reason=queue_full}"])
	near(t, 1, all["resilienthttp.admission.concurrency_limit{resilienthttp.shedder.name=front}"])
	near(t, 7, all["resilienthttp.admission.concurrency_limit{resilienthttp.shedder.name=uploads}"])
	require.Contains(t, r.tree(), "resilienthttp.rejection.reason=quota_exceeded")
	require.NotContains(t, r.everything(t), "s3cr3t")
	require.Equal(t, []string{"batch", "default", "critical", other}, []string{
		priorityName(resilienthttp.PriorityBatch), priorityName(resilienthttp.PriorityDefault), priorityName(resilienthttp.PriorityCritical), priorityName(9),
	})
	r.Unregister()
	require.NotContains(t, r.metrics(t), "resilienthttp.admission.concurrency_limit{resilienthttp.shedder.name=front}")
}

// T4: a server that sends any status and any version of HTTP makes a bounded number of series.
func TestMetrics_hostileServer(t *testing.T) {
	r, n := record(), 0
	rt := r.Wrap(&resilienthttp.Transport{Policy: resilienthttp.Policy{MaxAttempts: -1}, Breaker: never(), Base: roundTripper(func(req *http.Request) (*http.Response, error) {
		n++
		resp := respond(req, 100+n%900)
		resp.ProtoMajor, resp.ProtoMinor = n%10, n/10%10
		resp.Proto = fmt.Sprintf("HTTP/%d.%d", resp.ProtoMajor, resp.ProtoMinor)
		return resp, nil
	})})
	for range 5000 {
		_ = called(t, rt, get(t, t.Context(), url))
	}
	const statuses = 500
	all := r.metrics(t)
	require.LessOrEqual(t, seriesOf(all, "http.client.request.duration"), 5*(statuses+1))
	require.LessOrEqual(t, seriesOf(all, "resilienthttp.client.call.duration"), statuses+1)
}

// T12: gauges have the calls that wait now, by cause, and the limit of each quota beside its
// remaining requests.
func TestWaitingCallsAndQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := []string{"X-RateLimit-Limit", "20", "X-RateLimit-Remaining", "2", "X-RateLimit-Reset", "60"}
		r, tr := record(), &resilienthttp.Transport{
			Base:   script(answer{status: 200, header: quota}, answer{status: 503, header: quota}),
			Policy: every(10 * time.Second), Breaker: never(), RateLimit: &resilienthttp.RateLimit{Limit: 0.2, Burst: 2},
		}
		rt := r.Wrap(tr)
		require.NoError(t, called(t, rt, get(t, t.Context(), "http://api.test/")))
		for range 3 { // one fails and waits before its retry, two wait in the queue
			inBackground(t, rt, "http://api.test/")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		all, state := r.metrics(t), tr.State().Scopes[0]
		near(t, 2, all["resilienthttp.client.waiting_calls{resilienthttp.scope=api.test resilienthttp.wait.cause=rate_limit}"])
		near(t, 1, all["resilienthttp.client.waiting_calls{resilienthttp.scope=api.test resilienthttp.wait.cause=backoff}"])
		require.Equal(t, []int{2, 1}, []int{state.Queued, state.RetryWaiting})
		require.Len(t, state.Quotas, 2)
		for _, q := range state.Quotas {
			series := "{resilienthttp.quota.bucket=" + q.Bucket + " resilienthttp.scope=api.test}"
			require.Contains(t, all, metricQuotaLimit+series)
			near(t, float64(q.Limit), all[metricQuotaLimit+series])
			near(t, float64(q.Remaining), all[metricQuotaRemaining+series])
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		near(t, 0, total(r.metrics(t), metricWaitingCalls))
	})
}

// T12: a call that waits for the circuit has its own cause, while it waits and afterwards, also if its caller cancels it.
func TestWaitingCalls_circuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		rt := r.Wrap(&resilienthttp.Transport{
			Base: script(answer{status: 503}), Policy: resilienthttp.Policy{MaxAttempts: -1},
			Breaker: &resilienthttp.Breaker{MinRequests: 1, Cooldown: time.Hour},
		})
		require.NoError(t, called(t, rt, get(t, t.Context(), "http://api.test/")))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		req := get(t, ctx, "http://api.test/")
		go func() {
			_, err := rt.RoundTrip(req)
			ended <- err
		}()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		const series = "{resilienthttp.scope=api.test resilienthttp.wait.cause="
		all := r.metrics(t)
		near(t, 1, all[metricWaitingCalls+series+"circuit}"])
		near(t, 0, all[metricWaitingCalls+series+"rate_limit}"])
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		all = r.metrics(t)
		near(t, 0, total(all, metricWaitingCalls))
		near(t, 3, all["resilienthttp.client.wait.duration"+series+"circuit}"])
		near(t, 3, total(all, "resilienthttp.client.wait.duration"))
	})
}

// Of several quotas with one name, the one with the largest used part is exported.
func TestScopeSum_quotas(t *testing.T) {
	for name, row := range map[string]struct {
		quotas []resilienthttp.QuotaStatus
		want   map[string]quotaSum
	}{
		"without a limit: none":       {[]resilienthttp.QuotaStatus{{Bucket: "a"}}, nil},
		"one: itself":                 {[]resilienthttp.QuotaStatus{{Bucket: "a", Limit: 9, Remaining: 7}}, map[string]quotaSum{"a": {9, 7}}},
		"two names: both":             {[]resilienthttp.QuotaStatus{{Bucket: "a", Limit: 9, Remaining: 7}, {Bucket: "b", Limit: 5}}, map[string]quotaSum{"a": {9, 7}, "b": {5, 0}}},
		"one name: the fuller, first": {[]resilienthttp.QuotaStatus{{Bucket: "a", Limit: 1000, Remaining: 60}, {Bucket: "a", Limit: 100, Remaining: 50}}, map[string]quotaSum{"a": {1000, 60}}},
		"one name: the fuller, last":  {[]resilienthttp.QuotaStatus{{Bucket: "a", Limit: 100, Remaining: 50}, {Bucket: "a", Limit: 1000, Remaining: 60}}, map[string]quotaSum{"a": {1000, 60}}},
	} {
		t.Run(name, func(t *testing.T) {
			buckets, sum := &names{limit: maxBuckets}, scopeSum{}
			sum.add(&resilienthttp.ScopeState{Quotas: row.quotas}, buckets)
			require.Equal(t, row.want, sum.quotas)
		})
	}
}
