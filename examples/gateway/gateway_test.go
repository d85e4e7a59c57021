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

// The program with a slower API, and what holds on any machine.
func TestFleet(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := program{out: &out, workers: 4, service: 40 * time.Millisecond, length: 3 * time.Second, overload: 3, page: "127.0.0.1:0"}
	r, err := p.run(t.Context())
	require.NoError(t, err)
	r.print(&out, p.capacity())
	t.Log(out.String())
	require.NoError(t, r.verdict())
	require.Equal(t, 1, r.most, "the ledger")
	require.Positive(t, sum(r.shed))
	require.Positive(t, r.served[critical])
	require.Len(t, r.phases, 3)
	slow, noisy := r.phases[1], r.phases[2]
	require.GreaterOrEqual(t, slow.success(critical), slow.success(batch), "critical calls come first")
	require.Greater(t, noisy.success(standard), noisy.success(bulk), "bulk's header does not count")
	require.Positive(t, noisy.shed[bulk])
	require.Zero(t, r.over[partner])
	require.Contains(t, out.String(), "state page: http://127.0.0.1:")
	for _, part := range []string{"scraper", "on the page: limit", "(slow dependency)", "(noisy tenant)"} {
		require.Contains(t, out.String(), part)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, (&result{most: 2}).verdict(), "charged 2 times")
	r := &result{most: 1}
	r.over[scraper] = 9
	require.NoError(t, r.verdict())
	r.over[partner] = 1
	require.ErrorContains(t, r.verdict(), "met 1 answers 429")
}

// Each gate rejects before the next ones have done anything.
func TestOrder(t *testing.T) {
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
	}), 80) // of which the free plan has 4
	require.NoError(t, err)
	g.shedder.Max, g.shedder.Queue = 1, -1
	g.free.Window = time.Hour
	handler := g.handler()
	ask := func(token, key string, late bool) int {
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
	go func() { slow <- ask("Bearer partner-token", "slow", false) }()
	<-busy
	seen := func() (gone uint64, left int) {
		ticket, err := g.free.Take(t.Context(), "partner", 0)
		require.NoError(t, err)
		return g.shedder.State().Rejected, ticket.Remaining
	}
	for _, row := range []struct {
		name, token, key string
		late, free       bool // free: a slot is free again
		status           int
		shed             uint64
		left, charged    int
	}{
		{name: "auth, before the deadline", token: "unknown", key: "a", late: true, status: 401, left: 3, charged: 1},
		{name: "the deadline, before the Shedder", token: "Bearer partner-token", key: "a", late: true, status: 504, left: 3, charged: 1},
		{name: "the Shedder, before the quota", token: "Bearer partner-token", key: "a", status: 503, shed: 1, left: 3, charged: 1},
		{name: "the quota", token: "Bearer partner-token", key: "a", free: true, status: 201, shed: 1, left: 2, charged: 2},
		{name: "a replay costs nothing", token: "Bearer partner-token", key: "a", free: true, status: 201, shed: 1, left: 2, charged: 2},
		{name: "b", token: "Bearer partner-token", key: "b", free: true, status: 201, shed: 1, left: 1, charged: 3},
		{name: "c", token: "Bearer partner-token", key: "c", free: true, status: 201, shed: 1, left: 0, charged: 4},
		{name: "the quota, before idempotency", token: "Bearer partner-token", key: "a", free: true, status: 429, shed: 1, left: 0, charged: 4},
		{name: "the quota of another account", token: "Bearer scraper-token", key: "a", free: true, status: 201, shed: 1, left: 0, charged: 5},
		{name: "idempotency, before the handler", token: "Bearer shop-token", free: true, status: 400, shed: 1, left: 0, charged: 5},
	} {
		if row.free && release != nil {
			close(release)
			require.Equal(t, http.StatusCreated, <-slow)
			release = nil
		}
		require.Equal(t, row.status, ask(row.token, row.key, row.late), row.name)
		shed, left := seen()
		require.Equal(t, row.shed, shed, row.name)
		require.Equal(t, row.left, left, row.name)
		require.Equal(t, row.charged, charged, row.name)
	}
}

// A16: the priority header of a client that is not our own does not count.
func TestEdge_ignoresThePriorityHeaderOfStrangers(t *testing.T) {
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
	synctest.Test(t, showsItsGates) // virtual time: no gate is too slow for the page
	var out bytes.Buffer
	_, err := program{out: &out, workers: 1, service: time.Millisecond, length: time.Millisecond, overload: 1, page: "nonsense"}.run(t.Context())
	require.Error(t, err)
}

func showsItsGates(t *testing.T) {
	g, err := newGateway(http.NotFoundHandler(), 80)
	require.NoError(t, err)
	f := newFleet("http://nowhere.example", new(tally))
	defer f.close()
	w := httptest.NewRecorder()
	newPage(g, f).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?format=json", http.NoBody))
	require.Equal(t, http.StatusOK, w.Code)
	for _, part := range []string{`"Shedder"`, `"Admitted"`, `"Quota"`, `"partner"`} {
		require.Contains(t, w.Body.String(), part)
	}
}
