package admission_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// A19: which rejections tell the client not to retry.
func TestShedder_retryHint(t *testing.T) {
	const hint = "false"
	for _, row := range []struct {
		name     string
		stood    time.Duration // how long the queue has stood
		emptied  bool          // in between
		priority string
		without  bool // NoRetryHint
		want     string
	}{
		{name: "1.9 s: none", stood: 1900 * ms},
		{name: "2 s: do not retry", stood: 2 * time.Second, want: hint},
		{name: "2 s, batch: do not retry", stood: 2 * time.Second, priority: "batch", want: hint},
		{name: "2 s, critical: none", stood: 2 * time.Second, priority: "critical"},
		{name: "2 s, but the queue was empty once: none", stood: 2 * time.Second, emptied: true},
		{name: "2 s, NoRetryHint: none", stood: 2 * time.Second, without: true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			g := newGated()
			s := &admission.Shedder{Max: 1, Queue: 1, MaxWait: time.Hour, Priority: admission.PriorityFromHeader, NoRetryHint: row.without}
			h := s.Handler(g)
			send := func() {
				later(t, h, by("critical"))
				synctest.Wait()
			}
			send()
			send() // it waits
			sleep(row.stood)
			if row.emptied {
				g.gate <- struct{}{}
				synctest.Wait()
				send()
			}
			// A full queue of critical requests evicts the oldest. A newer critical one needs a
			// deadline that is too short.
			resp := ask(t, h, by(row.priority), within(t, -time.Second))
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			require.Equal(t, row.want, resp.Header.Get("X-Should-Retry"))
			require.NotEmpty(t, resp.Header.Get("Retry-After"))
			close(g.gate)
		})
	}
}

// A19: this library's client does not retry a call in a lasting overload.
func TestShedder_retryHintStopsTheClient(t *testing.T) {
	for _, row := range []struct {
		name    string
		without bool
		sent    int
	}{
		{"with the hint: one attempt", false, 1},
		{"NoRetryHint: two attempts", true, 2},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			g := newGated()
			s := &admission.Shedder{Max: 1, Queue: 1, MaxWait: time.Hour, Priority: admission.PriorityFromHeader, NoRetryHint: row.without}
			h, sent := s.Handler(g), 0
			for range 2 {
				later(t, h, by("critical"))
				synctest.Wait()
			}
			sleep(3 * time.Second)
			server := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				sent++
				h.ServeHTTP(w, r)
			}))
			client := &http.Client{Transport: &resilienthttp.Transport{Base: server.Transport(), Policy: resilienthttp.Policy{MaxAttempts: 2}}}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			require.NoError(t, err)
			resp, err := client.Do(req)
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			require.Equal(t, row.sent, sent)
			close(g.gate)
		})
	}
}
