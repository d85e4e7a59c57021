package docs_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/download"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// retriesExample loses a response and is overloaded. Then it does so to a POST without a key.
func retriesExample(t *testing.T) string {
	var charges faulttest.Idempotent
	bank := faulttest.NewInMemory(t, faulttest.Sequence(
		lost(&charges), usual(faulttest.Unavailable(2*time.Second, faulttest.Seconds)), usual(&charges), lost(&charges),
	))
	transport := &resilienthttp.Transport{Base: bank.Transport()}
	transport.Policy.Backoff = drawn(90*time.Millisecond, 400*time.Millisecond)
	withKey, err := call(t, transport, http.MethodPost, bank.URL+"/charges", `{"amount":100}`)
	require.NoError(t, err)
	resp, err := call(t, &resilienthttp.Transport{
		Base: bank.Transport().Clone(), Idempotency: resilienthttp.Idempotency{Disabled: true},
	}, http.MethodPost, bank.URL+"/charges", `{"amount":100}`)
	return resilienthttp.Explain(withKey, nil) + "\n\n" + resilienthttp.Explain(resp, err)
}

// idempotencyKeysExample shows a call as its client and its server see it.
func idempotencyKeysExample(t *testing.T) string {
	var charges faulttest.Idempotent
	bank := faulttest.NewInMemory(t, faulttest.Sequence(lost(&charges), usual(&charges)))
	transport := &resilienthttp.Transport{Base: bank.Transport()}
	transport.Policy.Backoff = drawn(90 * time.Millisecond)
	ctx := resilienthttp.WithIdempotencyKey(t.Context(), "invoice:001")
	resp, err := call(t, transport, http.MethodPost, bank.URL+"/charges", `{"amount":100}`, with(ctx))
	story := resilienthttp.Explain(resp, err) + "\n\nThe server:\n" + bank.Transcript()
	for key, n := range charges.Executions() {
		story += fmt.Sprintf("charges for key %s: %d\n", key, n)
	}
	return story
}

// deadlinesExample has a server that hangs, and then asks for more time than is left.
func deadlinesExample(t *testing.T) string {
	api := faulttest.NewInMemory(t, faulttest.Sequence(faulttest.Hang, usual(faulttest.Unavailable(2*time.Second, faulttest.Seconds))))
	transport := &resilienthttp.Transport{Base: api.Transport()}
	transport.Policy.AttemptTimeout = 3 * time.Second
	transport.Policy.Backoff = drawn(400 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	explained := resilienthttp.Explain(call(t, transport, http.MethodGet, api.URL+"/orders", "", with(ctx)))
	synctest.Wait() // the server notices the cancellation
	return explained + "\n\nThe server:\n" + api.Transcript()
}

// hedgingExample measures the usual latency, and then meets a slow response.
func hedgingExample(t *testing.T) string {
	const usualCalls = 100
	steps := make([]http.Handler, usualCalls, usualCalls+2)
	for i := range steps {
		steps[i] = usual(faulttest.OK(""))
	}
	api := faulttest.NewInMemory(t, faulttest.Sequence(append(steps, after(time.Second, faulttest.OK("")), usual(faulttest.OK("")))...))
	transport := &resilienthttp.Transport{Base: api.Transport(), Hedge: &resilienthttp.Hedge{}}
	for range usualCalls {
		_, err := call(t, transport, http.MethodGet, api.URL+"/orders", "")
		require.NoError(t, err)
	}
	return resilienthttp.Explain(call(t, transport, http.MethodGet, api.URL+"/orders", ""))
}

// errorsExample has a server that refuses connections.
func errorsExample(t *testing.T) string {
	transport := &resilienthttp.Transport{Base: &statusOrError{err: syscall.ECONNREFUSED}}
	transport.Policy.MaxAttempts = 3
	transport.Policy.Backoff = drawn(400*time.Millisecond, 2*time.Second)
	resp, err := call(t, transport, http.MethodGet, "http://api.test/orders", "")
	require.Error(t, err)
	return err.Error() + "\n\n" + resilienthttp.Explain(resp, err)
}

// regions are two servers in memory: frankfurt.test with the handler, and dublin.test, which works.
func regions(t *testing.T, first http.Handler) (frankfurt *faulttest.Server, list *endpoints.Transport) {
	t.Helper()
	frankfurt = &faulttest.Server{InMemory: true, Host: "frankfurt.test", Script: first}
	frankfurt.Start(t)
	dublin := &faulttest.Server{Network: frankfurt, Host: "dublin.test", Script: after(35*time.Millisecond, faulttest.OK(""))}
	dublin.Start(t)
	list = &endpoints.Transport{Transport: &resilienthttp.Transport{Base: frankfurt.Transport()}}
	for _, srv := range []*faulttest.Server{frankfurt, dublin} {
		u, err := url.Parse(srv.URL)
		require.NoError(t, err)
		list.Endpoints = append(list.Endpoints, endpoints.Endpoint{URL: u})
	}
	return frankfurt, list
}

func endpointsGetExample(t *testing.T) string {
	frankfurt, list := regions(t, usual(faulttest.Status(http.StatusServiceUnavailable)))
	return resilienthttp.Explain(call(t, list, http.MethodGet, frankfurt.URL+"/orders", ""))
}

func endpointsPostExample(t *testing.T) string {
	frankfurt, list := regions(t, faulttest.Sequence(usual(faulttest.Status(http.StatusServiceUnavailable)), usual(faulttest.OK(""))))
	list.Transport.Policy.Backoff = drawn(430 * time.Millisecond)
	return resilienthttp.Explain(call(t, list, http.MethodPost, frankfurt.URL+"/orders", "{}"))
}

// endpointsBackExample makes two GETs a second. The first region refuses connections for ten seconds.
func endpointsBackExample(t *testing.T) string {
	frankfurt, list := regions(t, usual(faulttest.OK("")))
	// Jitter must not decide whether a call in half a second is a probe.
	list.Transport.Breaker = &resilienthttp.Breaker{Cooldown: 600 * time.Millisecond, MaxCooldown: 600 * time.Millisecond}
	e := newEvents("calls", "attempts")
	down := func() bool { now := time.Since(e.start); return now >= 2*time.Second && now < 12*time.Second }
	list.Transport.Base = observed(func(req *http.Request) (*http.Response, error) {
		if req.URL.Host == "frankfurt.test" && down() {
			return nil, syscall.ECONNREFUSED
		}
		return frankfurt.Transport().RoundTrip(req)
	})
	for range 40 {
		at := time.Now()
		resp, err := call(t, list, http.MethodGet, frankfurt.URL+"/orders", "")
		require.NoError(t, err)
		var visited []string
		for _, a := range resilienthttp.Attempts(resp) {
			visited = append(visited, a.Endpoint+": "+result(a.Response, a.Err))
		}
		e.addCall(at, "", strings.Join(visited, ", "))
		time.Sleep(500*time.Millisecond - time.Since(at))
	}
	return e.String()
}

// downloadsExample breaks a connection after ten bytes.
func downloadsExample(t *testing.T) string {
	file := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "letters.txt", time.Time{}, strings.NewReader("abcdefghijklmnopqrstuvwxyz"))
	})
	mirror := faulttest.NewInMemory(t, faulttest.Sequence(
		faulttest.Reply{Handler: file, Delay: latency, Pause: 100 * time.Millisecond, Chunk: 5, Fault: faulttest.ResetMidBody, At: 10}, usual(file),
	))
	e := newEvents("event", "what")
	base := observed(func(req *http.Request) (*http.Response, error) {
		e.add("request", req.Method+" "+req.URL.Path+fields(req.Header, "Range", "If-Range"))
		resp, err := mirror.Transport().RoundTrip(req)
		if err == nil {
			e.add("response", result(resp, err)+fields(resp.Header, "ETag", "Content-Length", "Content-Range"))
		}
		return resp, err
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, mirror.URL+"/letters.txt", http.NoBody)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: &download.Transport{Base: &resilienthttp.Transport{Base: base}}}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	for err == nil {
		var n int
		buffer := make([]byte, 64)
		n, err = resp.Body.Read(buffer)
		e.add("read", strings.TrimSuffix(fmt.Sprintf("%q, %v", buffer[:n], err), ", <nil>"))
	}
	return e.String()
}
