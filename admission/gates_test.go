package admission_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// A6: the order of the handlers. A request that the Shedder rejects uses no quota. A request above the
// quota does not reach idempotency. As many replays as the quota has cost nothing. An expired deadline gets 504 from
// DeadlineHandler.
func TestHandlers_order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		charged := 0
		account := func(*http.Request) (string, error) { return "ann", nil }
		quota := &admission.Quota{Limit: 5, Window: time.Hour, Key: account}
		shedder := &admission.Shedder{Max: 1, Queue: -1}
		g := newGated()
		charge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			charged++
			if r.Header.Get("X-Name") == "slow" {
				g.ServeHTTP(w, r)
				return
			}
			w.WriteHeader(http.StatusOK)
		})
		gates := resilienthttp.DeadlineHandler{Next: shedder.Handler(quota.Handler(
			idempotency.NewHandler(new(idempotency.Memory), account, charge)))}
		send := func(key string, change ...func(*http.Request)) int {
			return ask(t, gates, append(change, header("Idempotency-Key", key), func(r *http.Request) { r.Method = http.MethodPost })...).StatusCode
		}
		left := func() int {
			ticket, err := quota.Take(t.Context(), "ann", 0)
			require.NoError(t, err)
			return ticket.Remaining
		}
		for range 6 { // the last five are replays, and Limit of them are free
			require.Equal(t, http.StatusOK, send("one"))
		}
		require.Equal(t, 1, charged)
		require.Equal(t, 4, left())

		slow := later(t, gates, header("Idempotency-Key", "slow"), header("X-Name", "slow"), func(r *http.Request) { r.Method = http.MethodPost })
		synctest.Wait()
		require.Equal(t, 3, left())
		require.Equal(t, http.StatusServiceUnavailable, send("two"))
		require.Equal(t, 3, left(), "what is shed costs no quota")
		close(g.gate)
		<-slow

		require.Equal(t, http.StatusGatewayTimeout, send("late", header("X-Request-Timeout-Ms", "0")))
		require.Equal(t, 3, left())
		for n := range 3 {
			require.Equal(t, http.StatusOK, send("more"+strconv.Itoa(n)))
		}
		require.Equal(t, http.StatusTooManyRequests, send("too much"))
		require.Equal(t, http.StatusTooManyRequests, send("one"), "a replay waits its turn like any other")
		require.Equal(t, 5, charged)
	})
}

// A4: a client with a Transport makes as many calls as it can. It gets no 429, and uses nearly all of
// the quota, on one server and on three servers with a shared store.
func TestQuota_withTransportAsClient(t *testing.T) {
	for _, row := range []struct {
		name    string
		limit   int
		window  time.Duration
		sliding bool
		servers int
		length  time.Duration
		used    float64 // minimum ratio of the quota
		late    int64   // maximum number of 429s

		priorities []resilienthttp.Priority // of the callers, in turn; nil: the default
	}{
		// In one or two of a hundred runs, one of 700 requests is rejected.
		{name: "token bucket of a minute", limit: 100, window: time.Minute, servers: 1, length: 6 * time.Minute, used: 0.98, late: 1},
		{name: "token bucket of ten seconds", limit: 500, window: 10 * time.Second, servers: 1, length: time.Minute, used: 0.98},
		{name: "all priorities share the quota", limit: 100, window: time.Minute, servers: 1, length: 6 * time.Minute, used: 0.98, late: 1,
			priorities: []resilienthttp.Priority{resilienthttp.PriorityBatch, resilienthttp.PriorityDefault, resilienthttp.PriorityCritical}},
		{name: "three servers", limit: 300, window: time.Minute, servers: 3, length: 6 * time.Minute, used: 0.98, late: 1},
		// The server advertises only a reset, and that of a sliding window is a whole
		// window after the last request, rounded up to a second. Responses arrive out of order,
		// and the client follows the earliest reset that it reads. So about one request of a window is too early.
		{name: "sliding", limit: 100, window: time.Minute, sliding: true, servers: 1, length: 6 * time.Minute, used: 0.9, late: 9},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var store quotastore.Memory
			var served, rejected atomic.Int64
			handlers := make([]http.Handler, row.servers)
			for i := range handlers {
				q := &admission.Quota{Limit: row.limit, Window: row.window, Sliding: row.sliding, Key: func(*http.Request) (string, error) { return "ann", nil }}
				if row.servers > 1 {
					q.Store = &store
				}
				handlers[i] = q.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					served.Add(1)
					sleep(time.Duration(1+rand.IntN(9)) * time.Millisecond)
					w.WriteHeader(http.StatusNoContent)
				}))
			}
			balance := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				counting := &statusWriter{ResponseWriter: w}
				handlers[rand.IntN(len(handlers))].ServeHTTP(counting, r)
				if counting.status == http.StatusTooManyRequests {
					rejected.Add(1)
				}
			})
			server := memhttp.NewServer(t, balance)
			client := &http.Client{Transport: &resilienthttp.Transport{Base: server.Transport()}}
			ctx, cancel := context.WithTimeout(t.Context(), row.length)
			defer cancel()
			var all sync.WaitGroup
			for i := range 20 {
				ctx := ctx
				if n := len(row.priorities); n > 0 {
					ctx = resilienthttp.WithPriority(ctx, row.priorities[i%n])
				}
				all.Go(func() {
					for ctx.Err() == nil {
						req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
						if err != nil {
							return
						}
						resp, err := client.Do(req)
						if err != nil {
							sleep(100 * time.Millisecond)
							continue
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
				})
			}
			all.Wait()
			granted := float64(row.limit) * float64(row.length) / float64(row.window)
			t.Logf("served %d of %.0f, rejected %d", served.Load(), granted, rejected.Load())
			require.LessOrEqual(t, rejected.Load(), row.late)
			used := float64(served.Load())
			if !row.sliding {
				used -= float64(row.limit) // the bucket was full
			}
			require.GreaterOrEqual(t, used, row.used*granted)
		})
	}
}

type statusWriter struct {
	http.ResponseWriter

	status int
}

func (w *statusWriter) WriteHeader(code int) {
	w.status = code
	w.ResponseWriter.WriteHeader(code)
}

// A9: a server with a Shedder, at three and at nine times its capacity.
func TestShedder_overload(t *testing.T) {
	for _, load := range []float64{0.8, 3, 9} {
		bubble.Run(t, strconv.FormatFloat(load, 'g', -1, 64), func(t *testing.T) {
			const workers, service, length = 12, 10 * ms, 4 * time.Second
			pool := make(chan struct{}, workers)
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case pool <- struct{}{}:
					sleep(service)
					<-pool
					w.WriteHeader(http.StatusNoContent)
				case <-r.Context().Done():
					w.WriteHeader(http.StatusGatewayTimeout)
				}
			})
			s := &admission.Shedder{Priority: admission.PriorityFromHeader}
			h := s.Handler(handler)
			random := rand.New(rand.NewPCG(1, 2))
			var came, served [3]atomic.Int64
			var all sync.WaitGroup
			rate := load * workers / service.Seconds()
			for began := time.Now(); time.Since(began) < length; {
				class := 1
				if x := random.Float64(); x < 0.1 {
					class = 2
				} else if x < 0.4 {
					class = 0
				}
				all.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 500*ms)
					defer cancel()
					r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
					r.Header.Set("X-Request-Priority", []string{"batch", "", "critical"}[class])
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					came[class].Add(1)
					if w.Code == http.StatusNoContent && ctx.Err() == nil {
						served[class].Add(1)
					}
				})
				sleep(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
			}
			all.Wait()
			total := served[0].Load() + served[1].Load() + served[2].Load()
			offered := came[0].Load() + came[1].Load() + came[2].Load()
			goodput := float64(total) / min(float64(offered), workers/service.Seconds()*length.Seconds())
			critical := float64(served[2].Load()) / float64(came[2].Load())
			t.Logf("goodput %.3f, critical %.4f, %+v", goodput, critical, s.State())
			require.GreaterOrEqual(t, goodput, 0.95)
			require.GreaterOrEqual(t, critical, 0.99)
			require.Zero(t, s.State().InFlight)
		})
	}
}
