package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// Each handler rejects a request before the next handlers see it.
func TestHandler_order(t *testing.T) {
	t.Parallel()
	busy, release := make(chan struct{}), make(chan struct{})
	charged := 0
	g, err := newGateway(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charged++
		if r.Header.Get("Idempotency-Key") == "slow" {
			close(busy)
			<-release
		}
		w.WriteHeader(http.StatusCreated)
	}), 80) // the free plan has a twentieth: 4
	require.NoError(t, err)
	g.shedder.Max, g.shedder.Queue = 1, -1
	g.free.Window = time.Hour
	handler := g.handler()
	send := func(token, key string, late bool) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
		r.Header.Set("Authorization", token)
		r.Header.Set("Idempotency-Key", key)
		if late {
			r.Header.Set("X-Request-Timeout-Ms", "0")
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	slow := make(chan int)
	go func() { slow <- send("Bearer partner-token", "slow", false) }()
	<-busy
	state := func() (rejected uint64, left int) {
		result, err := g.free.Take(t.Context(), "partner", 0)
		require.NoError(t, err)
		return g.shedder.State().Rejected, result.Remaining
	}
	for _, row := range []struct {
		name, token, key string
		late, free       bool // free: a slot is free again
		status           int
		shed             uint64
		left, charged    int
	}{
		{name: "unknown token and expired: 401", token: "unknown", key: "a", late: true, status: 401, left: 3, charged: 1},
		{name: "expired: 504 before the Shedder", token: "Bearer partner-token", key: "a", late: true, status: 504, left: 3, charged: 1},
		{name: "no slot: 503 before the quota", token: "Bearer partner-token", key: "a", status: 503, shed: 1, left: 3, charged: 1},
		{name: "first charge: uses the quota", token: "Bearer partner-token", key: "a", free: true, status: 201, shed: 1, left: 2, charged: 2},
		{name: "replay: costs nothing", token: "Bearer partner-token", key: "a", free: true, status: 201, shed: 1, left: 2, charged: 2},
		{name: "second charge", token: "Bearer partner-token", key: "b", free: true, status: 201, shed: 1, left: 1, charged: 3},
		{name: "third charge", token: "Bearer partner-token", key: "c", free: true, status: 201, shed: 1, left: 0, charged: 4},
		{name: "quota used up: 429 before idempotency", token: "Bearer partner-token", key: "a", free: true, status: 429, shed: 1, left: 0, charged: 4},
		{name: "other account: own quota", token: "Bearer scraper-token", key: "a", free: true, status: 201, shed: 1, left: 0, charged: 5},
		{name: "no key: 400 before the handler", token: "Bearer shop-token", free: true, status: 400, shed: 1, left: 0, charged: 5},
	} {
		if row.free && release != nil {
			close(release)
			require.Equal(t, http.StatusCreated, <-slow)
			release = nil
		}
		require.Equal(t, row.status, send(row.token, row.key, row.late), row.name)
		shed, left := state()
		require.Equal(t, row.shed, shed, row.name)
		require.Equal(t, row.left, left, row.name)
		require.Equal(t, row.charged, charged, row.name)
	}
}

// I4: no response of the API that proves nothing is stored.
func TestHandler_passesOn(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		first  int
		after  string
		second int
	}{
		{name: "in progress", first: 409, after: "1", second: 201},
		{name: "503 of a proxy", first: 503, second: 201},
		{name: "504", first: 504, second: 201},
		{name: "declined: stored", first: 402, second: 402},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			answers := []int{row.first, http.StatusCreated}
			g, err := newGateway(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if answers[0] == row.first && row.after != "" {
					w.Header().Set("Retry-After", row.after)
				}
				w.WriteHeader(answers[0])
				answers = answers[1:]
			}), 80)
			require.NoError(t, err)
			handler := g.handler()
			for _, want := range []int{row.first, row.second, row.second} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
				r.Header.Set("Authorization", "Bearer partner-token")
				r.Header.Set("Idempotency-Key", "a")
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				require.Equal(t, want, w.Code)
			}
		})
	}
}

// §4.18a: the client sees the last response only, so that must not hide what became of an attempt before it.
func TestProxy_passesOnDoubt(t *testing.T) {
	t.Parallel()
	lost := faulttest.LoseResponse(faulttest.Status(http.StatusCreated))
	refused := faulttest.Reply{Status: http.StatusServiceUnavailable, Header: http.Header{"Request-Executed": {"?0"}}}
	overloaded := faulttest.Reply{Status: http.StatusServiceUnavailable, Header: http.Header{"X-Envoy-Overloaded": {"true"}}}
	for _, row := range []struct {
		name    string
		answers []http.Handler
		status  int
		inDoubt bool
	}{
		{"not executed", []http.Handler{refused}, 503, false},
		{"lost, then not executed", []http.Handler{lost, refused}, 502, true},
		{"lost, then not executed, as Envoy says", []http.Handler{lost, overloaded}, 502, true},
		{"429", []http.Handler{faulttest.Status(429)}, 429, false},
		{"lost, then 429", []http.Handler{lost, faulttest.Status(429)}, 502, true},
		{"declined", []http.Handler{faulttest.Status(402)}, 402, false},
		{"lost, then 404 of another version", []http.Handler{lost, faulttest.Status(404)}, 502, true},
		{"lost, then still in progress", []http.Handler{lost, faulttest.Status(409)}, 502, true},
		{"lost, then 503", []http.Handler{lost, faulttest.Status(503)}, 503, true},
		{"lost, then done", []http.Handler{lost, faulttest.Status(201)}, 201, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := faulttest.NewInMemory(t, faulttest.Sequence(row.answers...))
				target, err := url.Parse(api.URL)
				require.NoError(t, err)
				g, err := newGateway(proxy(target, &resilienthttp.Transport{Base: api.Transport()}), 80)
				require.NoError(t, err)
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", http.NoBody)
				r.Header.Set("Authorization", "Bearer shop-token")
				r.Header.Set("Idempotency-Key", "a")
				w := httptest.NewRecorder()
				g.handler().ServeHTTP(w, r)
				resp := w.Result()
				require.NoError(t, resp.Body.Close())
				resp.Request = r // as the gateway's client has it
				require.Equal(t, row.status, resp.StatusCode)
				require.Equal(t, row.inDoubt, resilienthttp.InDoubt(resp, nil))
			})
		})
	}
}

// A16: the priority header is ignored unless the account is our own.
func TestPriorityOf_ignoresHeaderOfOtherAccounts(t *testing.T) {
	t.Parallel()
	g, err := newGateway(http.NotFoundHandler(), 80)
	require.NoError(t, err)
	for token, want := range map[string]string{"Bearer shop-token": "critical", "Bearer scraper-token": "default", "Bearer bulk-token": "default"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
		r.Header.Set("X-Request-Priority", "critical")
		r = r.WithContext(context.WithValue(r.Context(), accountKey{}, g.accounts[token]))
		require.Equal(t, want, priorityOf(r).String(), token)
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, checkPage) // virtual time: no source is too slow for the page
}

func checkPage(t *testing.T) {
	g, err := newGateway(http.NotFoundHandler(), 80)
	require.NoError(t, err)
	w := httptest.NewRecorder()
	newPage(g, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/state?format=json", http.NoBody))
	require.Equal(t, http.StatusOK, w.Code)
	for _, part := range []string{`"Shedder"`, `"Admitted"`, `"Quota"`, `"partner"`} {
		require.Contains(t, w.Body.String(), part)
	}
}

// run forwards requests with the name of the account, until its context ends.
func TestRun(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := r.BasicAuth()
		fmt.Fprint(w, name, " ", r.URL.Path, " ", r.Header.Get("Idempotency-Key"))
	}))
	defer api.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.ErrorContains(t, run(t.Context(), listener, "nonsense", 80), "want a URL")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- run(ctx, listener, api.URL, 80) }()
	get := func(method, path string) string {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+listener.Addr().String()+path, http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer shop-token")
		r.Header.Set("Idempotency-Key", "1")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(body)
	}
	require.Equal(t, "shop /charges 1", get(http.MethodPost, "/charges"))
	require.Contains(t, get(http.MethodGet, "/state"), "the API")
	cancel()
	require.NoError(t, <-ended)
}
