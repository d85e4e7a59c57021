package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The program with a slower API. The assertions hold on any machine.
func TestFleet(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := program{out: &out, workers: 4, service: 40 * time.Millisecond, length: 3 * time.Second, overload: 3, page: "127.0.0.1:0"}
	r, err := p.run(t.Context())
	require.NoError(t, err)
	r.print(&out, p.capacity())
	t.Log(out.String())
	require.NoError(t, r.verdict())
	require.Equal(t, 1, r.maxCharges, "charges with one key")
	require.Positive(t, sum(r.shed))
	require.Positive(t, r.served[critical])
	require.Len(t, r.phases, 3)
	slow, noisy := r.phases[1], r.phases[2]
	require.GreaterOrEqual(t, slow.success(critical), slow.success(batch), "critical calls have precedence")
	require.Greater(t, noisy.success(standard), noisy.success(bulk), "the priority header of bulk is ignored")
	require.Positive(t, noisy.shed[bulk])
	require.Zero(t, r.throttled[partner])
	require.Contains(t, out.String(), "state page: http://127.0.0.1:")
	for _, part := range []string{"scraper", "state page: limit", "(slow dependency)", "(noisy tenant)"} {
		require.Contains(t, out.String(), part)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, (&result{maxCharges: 2}).verdict(), "charged 2 times")
	r := &result{maxCharges: 1}
	r.throttled[scraper] = 9
	require.NoError(t, r.verdict())
	r.throttled[partner] = 1
	require.ErrorContains(t, r.verdict(), "got 429 1 times")
}

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
	var out bytes.Buffer
	_, err := program{out: &out, workers: 1, service: time.Millisecond, length: time.Millisecond, overload: 1, page: "nonsense"}.run(t.Context())
	require.Error(t, err)
}

func checkPage(t *testing.T) {
	g, err := newGateway(http.NotFoundHandler(), 80)
	require.NoError(t, err)
	f := newFleet("http://nowhere.example", new(counters))
	defer f.close()
	w := httptest.NewRecorder()
	newPage(g, f).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?format=json", http.NoBody))
	require.Equal(t, http.StatusOK, w.Code)
	for _, part := range []string{`"Shedder"`, `"Admitted"`, `"Quota"`, `"partner"`} {
		require.Contains(t, w.Body.String(), part)
	}
}
