package admission_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

const ms = time.Millisecond

// answer is the response to a request that was sent in its own goroutine.
type answer struct {
	status int
	took   time.Duration
	header http.Header
}

// later sends a request in its own goroutine.
func later(tb testing.TB, h http.Handler, change ...func(*http.Request)) <-chan answer {
	tb.Helper()
	answers := make(chan answer, 1)
	go func() {
		began := time.Now()
		resp := ask(tb, h, change...)
		answers <- answer{resp.StatusCode, time.Since(began), resp.Header}
	}()
	return answers
}

func within(tb testing.TB, d time.Duration) func(*http.Request) {
	return func(r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), d)
		tb.Cleanup(cancel)
		*r = *r.WithContext(ctx)
	}
}

func by(p string) func(*http.Request) { return header("X-Request-Priority", p) }

// gated is a handler that waits until the gate opens.
type gated struct {
	gate  chan struct{}
	mu    sync.Mutex
	order []string
}

func (g *gated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.order = append(g.order, r.Header.Get("X-Name"))
	g.mu.Unlock()
	<-g.gate
	w.WriteHeader(http.StatusNoContent)
}

func newGated() *gated { return &gated{gate: make(chan struct{})} }

// taking is a handler with a fixed latency.
func taking(d time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sleep(d)
		w.WriteHeader(http.StatusNoContent)
	})
}

// A2: the headers and the problem of a rejection.
func TestShedder_rejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		s := &admission.Shedder{Max: 1, Queue: -1}
		h := s.Handler(g)
		first := later(t, h)
		synctest.Wait()
		resp := ask(t, h)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Equal(t, "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", readProblem(t, resp).Type)
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, seconds, 1)
		require.LessOrEqual(t, seconds, 2)
		after, err := strconv.Atoi(resp.Header.Get("Retry-After-Ms"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, after, 1000)
		require.LessOrEqual(t, after, 1500)
		require.Equal(t, admission.ShedderState{Limit: 1, InFlight: 1, Admitted: 1, Rejected: 1}, s.State())
		close(g.gate)
		require.Equal(t, http.StatusNoContent, (<-first).status)
		passed := ask(t, h)
		require.Equal(t, http.StatusNoContent, passed.StatusCode)
		require.Empty(t, passed.Header.Values("Request-Executed"), "A21: only a rejection has it")
		require.Zero(t, s.State().InFlight)
	})
}

func TestShedderValidate(t *testing.T) {
	for _, row := range []struct {
		name    string
		shedder *admission.Shedder
		wrong   string // "": nothing is
		limit   int
	}{
		{"zero", &admission.Shedder{}, "", 20},
		{"the defaults, written out", &admission.Shedder{Initial: 20, Min: 4, Max: 1000, Tolerance: 2}, "", 20},
		{"a small Max", &admission.Shedder{Max: 2}, "", 2},
		{"a small Initial", &admission.Shedder{Initial: 1}, "", 1},
		{"a large Initial", &admission.Shedder{Initial: 5000}, "", 5000},
		{"a large Min", &admission.Shedder{Min: 5000}, "", 5000},
		{"static", &admission.Shedder{Tolerance: -1}, "", 20},
		{"negative Initial", &admission.Shedder{Initial: -1}, "Initial -1", 0},
		{"negative Min", &admission.Shedder{Min: -1}, "Min -1", 0},
		{"negative Max", &admission.Shedder{Max: -1}, "Max -1", 0},
		{"Min above Max", &admission.Shedder{Min: 10, Max: 5}, "Min is 10, and must be at most 5 (Max)", 0},
		{"Initial above Max", &admission.Shedder{Initial: 10, Max: 5}, "Initial is 10", 0},
		{"Initial below Min", &admission.Shedder{Initial: 3, Min: 5}, "Initial is 3", 0},
		{"Tolerance 1", &admission.Shedder{Tolerance: 1}, "Tolerance is 1", 0},
		{"Tolerance below 1", &admission.Shedder{Tolerance: 0.5}, "Tolerance is 0.5", 0},
		{"a MaxWait of 100 ns", &admission.Shedder{MaxWait: 100}, "MaxWait is 100ns, must be at least 1µs", 0},
		{"all of it", &admission.Shedder{Max: -1, Tolerance: 1, MaxWait: 5}, "Max -1 must not be negative\nadmission: Tolerance is 1, and must be more than 1\nadmission: MaxWait is 5ns", 0},
		{"no number", &admission.Shedder{Tolerance: math.NaN()}, "Tolerance is NaN", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := row.shedder.Validate()
			resp := ask(t, row.shedder.Handler(ok()))
			if row.wrong == "" {
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, resp.StatusCode)
				require.Equal(t, row.limit, row.shedder.State().Limit)
				return
			}
			require.ErrorContains(t, err, row.wrong)
			require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
			require.Equal(t, "false", resp.Header.Get("X-Should-Retry"))
			require.Contains(t, readProblem(t, resp).Type, "#misconfigured")
		})
	}
}

// The queue serves the most important request first, and of those the newest. A full queue
// evicts the least important and oldest request.
func TestShedderQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		s := &admission.Shedder{Max: 1, Queue: 4, MaxWait: time.Hour, Priority: admission.PriorityFromHeader}
		h := s.Handler(g)
		ask := func(name, priority string) <-chan answer {
			c := later(t, h, by(priority), header("X-Name", name))
			synctest.Wait()
			return c
		}
		ask("first", "")
		oldBatch, newBatch := ask("old batch", "batch"), ask("new batch", "batch")
		oldDefault, newDefault := ask("old default", ""), ask("new default", "")
		oldCritical := ask("old critical", "critical")
		require.Equal(t, http.StatusServiceUnavailable, (<-oldBatch).status, "displaced by what matters more")
		newCritical := ask("new critical", "critical")
		require.Equal(t, http.StatusServiceUnavailable, (<-newBatch).status)
		late := ask("late batch", "batch")
		require.Equal(t, http.StatusServiceUnavailable, (<-late).status, "no queued request is less important")
		newest := ask("newest default", "")
		require.Equal(t, http.StatusServiceUnavailable, (<-oldDefault).status, "the newest of a class displaces the oldest")
		require.Equal(t, admission.ShedderState{Limit: 1, InFlight: 1, Queued: 4, Admitted: 1, Rejected: 4}, s.State())
		close(g.gate)
		for _, c := range []<-chan answer{oldCritical, newCritical, newest, newDefault} {
			require.Equal(t, http.StatusNoContent, (<-c).status)
		}
		synctest.Wait()
		require.Equal(t, []string{"first", "new critical", "old critical", "newest default", "new default"}, g.order)
	})
}

// A burst waits for slots, as far as they come in time, for any age of the known latency.
func TestShedderServesBursts(t *testing.T) {
	for _, row := range []struct {
		name   string
		queue  int
		before int // requests, one after the other
		pause  time.Duration
		served int // of 200 at once, of 5 ms each
	}{
		{"after a few", 0, 10, 0, 200},
		{"after an hour", 0, 10, time.Hour, 200},
		{"nothing is known", 0, 0, 0, 20 + 40},
		{"a queue of ten", 10, 10, 0, 20 + 10},
		{"no queue", -1, 10, 0, 20},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			h := (&admission.Shedder{Queue: row.queue}).Handler(taking(5 * ms))
			for range row.before {
				require.Equal(t, http.StatusNoContent, ask(t, h).StatusCode)
			}
			time.Sleep(row.pause)
			var burst []<-chan answer
			for range 200 {
				burst = append(burst, later(t, h))
			}
			served := 0
			for _, answers := range burst {
				a := <-answers
				if a.status == http.StatusNoContent {
					served++
				}
				require.LessOrEqual(t, a.took, 105*ms)
			}
			require.Equal(t, row.served, served)
		})
	}
}

// A7: a request leaves the queue within a millisecond after its deadline.
func TestShedder_deadlinePassesInQueue(t *testing.T) {
	for _, priority := range []string{"batch", "", "critical"} {
		for _, wait := range []time.Duration{0, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				g := newGated()
				s := &admission.Shedder{Max: 1, MaxWait: wait, Priority: admission.PriorityFromHeader}
				h := s.Handler(g)
				later(t, h)
				synctest.Wait()
				got := <-later(t, h, within(t, 40*ms), by(priority))
				require.Equal(t, http.StatusServiceUnavailable, got.status)
				require.GreaterOrEqual(t, got.took, 40*ms)
				require.LessOrEqual(t, got.took, 41*ms)
				require.Zero(t, s.State().Queued)
				close(g.gate)
			})
		}
	}
}

// A7: a request that cannot be served before its deadline is rejected at once.
func TestShedder_deadlineTooShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(admission.Shedder)
		h := s.Handler(taking(100 * ms))
		require.Equal(t, http.StatusNoContent, ask(t, h, within(t, 50*ms)).StatusCode, "the latency is unknown")
		for range 20 {
			require.Equal(t, http.StatusNoContent, ask(t, h).StatusCode)
		}
		got := <-later(t, h, within(t, 50*ms))
		require.Equal(t, http.StatusServiceUnavailable, got.status)
		require.Zero(t, got.took)
		require.Equal(t, http.StatusNoContent, ask(t, h, within(t, 150*ms)).StatusCode)
		passed := <-later(t, h, within(t, -time.Second))
		require.Equal(t, http.StatusServiceUnavailable, passed.status)
		require.Zero(t, passed.took)

		// An old latency is not used.
		sleep(time.Minute)
		require.Equal(t, http.StatusNoContent, ask(t, h, within(t, 50*ms)).StatusCode)
	})
}

// A7: the expected wait in the queue counts.
func TestShedder_deadlineShorterThanQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &admission.Shedder{Max: 1, Queue: 10, MaxWait: time.Hour, Priority: admission.PriorityFromHeader}
		h := s.Handler(taking(100 * ms))
		asks(t, h, 20)
		for range 5 {
			later(t, h, by("critical"))
			synctest.Wait()
		}
		for _, row := range []struct {
			left   time.Duration
			status int
		}{{250 * ms, http.StatusServiceUnavailable}, {5 * time.Second, http.StatusNoContent}} {
			began := time.Now()
			got := <-later(t, h, within(t, row.left))
			require.Equal(t, row.status, got.status)
			if row.status != http.StatusNoContent {
				require.Zero(t, time.Since(began))
			}
		}
		sleep(time.Minute)
	})
}

// A8, A16: the header's priority counts only with a Priority function that reads it. The
// result is in the context.
func TestShedderPriority(t *testing.T) {
	for _, row := range []struct {
		name     string
		priority func(*http.Request) resilienthttp.Priority
		header   string
		want     resilienthttp.Priority
	}{
		{"no Priority, critical: default", nil, "critical", resilienthttp.PriorityDefault},
		{"no Priority, batch: default", nil, "batch", resilienthttp.PriorityDefault},
		{"the header is", admission.PriorityFromHeader, "critical", resilienthttp.PriorityCritical},
		{"an unknown word", admission.PriorityFromHeader, "urgent", resilienthttp.PriorityDefault},
		{"an absurd word", admission.PriorityFromHeader, strings.Repeat("critical ", 1<<16), resilienthttp.PriorityDefault},
		{"no header", admission.PriorityFromHeader, "", resilienthttp.PriorityDefault},
		{"decided otherwise", func(*http.Request) resilienthttp.Priority { return resilienthttp.PriorityBatch }, "critical", resilienthttp.PriorityBatch},
		{"an unknown value", func(*http.Request) resilienthttp.Priority { return 100 }, "critical", resilienthttp.PriorityDefault},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var got, traced resilienthttp.Priority = 99, 99
			s := &admission.Shedder{Priority: row.priority, Trace: &admission.Trace{Admitted: func(e *admission.Event) { traced = e.Priority }}}
			h := resilienthttp.DeadlineHandler{Next: s.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				got = resilienthttp.PriorityFromContext(r.Context())
			}))}
			ask(t, h, by(row.header))
			require.Equal(t, row.want, got)
			require.Equal(t, row.want, traced)
		})
	}
}

// A panic returns the slot, and is not recovered.
func TestShedder_handlerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &admission.Shedder{Max: 1, Queue: -1}
		for _, value := range []any{"bug", http.ErrAbortHandler} {
			h := s.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(value) }))
			require.PanicsWithValue(t, value, func() { ask(t, h) })
			require.Zero(t, s.State().InFlight)
		}
		hook := &admission.Shedder{Max: 1, Queue: -1, Trace: &admission.Trace{Admitted: func(*admission.Event) { panic("hook") }}}
		require.PanicsWithValue(t, "hook", func() { ask(t, hook.Handler(ok())) })
		require.Zero(t, hook.State().InFlight)
		panicking := &admission.Shedder{Max: 1, Queue: -1, Priority: func(*http.Request) resilienthttp.Priority { panic("priority") }}
		require.PanicsWithValue(t, "priority", func() { ask(t, panicking.Handler(ok())) })
		require.Zero(t, panicking.State().InFlight)
	})
}

// If its client disconnects, a request leaves the queue. If it has a slot, it keeps the slot
// until the handler returns.
func TestShedder_clientDisconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		var reasons []admission.Reason
		s := &admission.Shedder{Max: 1, MaxWait: time.Hour, Trace: &admission.Trace{Rejected: func(e *admission.Event) { reasons = append(reasons, e.Reason) }}}
		h := s.Handler(g)
		ctx, cancel := context.WithCancel(t.Context())
		with := func(r *http.Request) { *r = *r.WithContext(ctx) }
		served := later(t, h, with)
		synctest.Wait()
		waiting := later(t, h, with)
		synctest.Wait()
		require.Equal(t, 1, s.State().Queued)
		cancel()
		require.Equal(t, http.StatusServiceUnavailable, (<-waiting).status)
		require.Equal(t, []admission.Reason{admission.ReasonCanceled}, reasons)
		require.Equal(t, 1, s.State().InFlight)
		require.Zero(t, s.State().Queued)
		close(g.gate)
		<-served
		require.Zero(t, s.State().InFlight)
	})
}

// Over a real connection: hijacking and 101 return the slot once.
func TestShedder_hijackReturnsSlot(t *testing.T) {
	wrap := func(h http.Handler) http.Handler { return h }
	hide := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(hidden{w}, r) })
	}
	for name, around := range map[string]func(http.Handler) http.Handler{"plain": wrap, "behind a wrapper": hide} {
		for way, hijack := range map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
			"http.Hijacker": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() },
			"http.ResponseController": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
				return http.NewResponseController(w).Hijack()
			},
			"101": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
				w.WriteHeader(http.StatusSwitchingProtocols)
				return nil, nil, nil
			},
		} {
			t.Run(name+" "+way, func(t *testing.T) {
				s := &admission.Shedder{Max: 1, Queue: -1}
				inside, over := make(chan admission.ShedderState, 1), make(chan struct{})
				server := httptest.NewServer(around(s.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					conn, _, err := hijack(w)
					inside <- s.State()
					<-over
					if err == nil && conn != nil {
						_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
						_ = conn.Close()
					}
				}))))
				defer server.Close()
				go func() {
					resp, err := http.Get(server.URL)
					if err == nil {
						_ = resp.Body.Close()
					}
				}()
				require.Zero(t, (<-inside).InFlight)
				close(over)
				server.Close()
				require.Zero(t, s.State().InFlight, "and not twice")
			})
		}
	}
}

// hidden is a wrapper that has Unwrap alone.
type hidden struct{ w http.ResponseWriter }

func (h hidden) Header() http.Header         { return h.w.Header() }
func (h hidden) Write(p []byte) (int, error) { return h.w.Write(p) }
func (h hidden) WriteHeader(code int)        { h.w.WriteHeader(code) }
func (h hidden) Unwrap() http.ResponseWriter { return h.w }

// The handler finds the optional interfaces that there are, and no others.
func TestShedderWriter(t *testing.T) {
	var flusher, hijacker, readerFrom bool
	h := new(admission.Shedder).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, flusher = w.(http.Flusher)
		_, hijacker = w.(http.Hijacker)
		_, readerFrom = w.(io.ReaderFrom)
		_, _ = io.WriteString(w, "one,")
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(w, strings.NewReader("two,"))
		_, _ = w.Write([]byte("three"))
	}))
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	get := func(client *http.Client, url string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(body)
	}
	require.Equal(t, "one,two,three", get(server.Client(), server.URL))
	require.Equal(t, []bool{true, false, false}, []bool{flusher, hijacker, readerFrom}, "HTTP/2")
	plain := httptest.NewServer(h)
	defer plain.Close()
	require.Equal(t, "one,two,three", get(plain.Client(), plain.URL))
	require.Equal(t, []bool{true, true, true}, []bool{flusher, hijacker, readerFrom}, "HTTP/1.1")
	bare := struct{ http.ResponseWriter }{httptest.NewRecorder()}
	h.ServeHTTP(bare, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	require.Equal(t, []bool{false, false, false}, []bool{flusher, hijacker, readerFrom})
}

// A goroutine that writes after its handler has returned does not write into another
// response.
func TestShedder_writeAfterHandler(t *testing.T) {
	s := new(admission.Shedder)
	var kept []http.ResponseWriter
	h := s.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { kept = append(kept, w) }))
	for range 100 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	}
	bodies := map[*bytes.Buffer]bool{}
	for _, w := range kept {
		_, _ = io.WriteString(w, "late")
		recorder, ok := w.(interface{ Unwrap() http.ResponseWriter }).Unwrap().(*httptest.ResponseRecorder)
		require.True(t, ok)
		require.Equal(t, "late", recorder.Body.String())
		bodies[recorder.Body] = true
	}
	require.Len(t, bodies, 100)
}

// A1: the rejection comes before the body is sent, and the connection stays open.
func TestShedder_rejectionBeforeBody(t *testing.T) {
	quota := &admission.Quota{Limit: 1, Window: time.Hour}
	full := &admission.Shedder{Max: 1, Queue: -1}
	for name, limit := range map[string]func(http.Handler) http.Handler{"quota": quota.Handler, "shedder": full.Handler} {
		bubble.Run(t, name, func(t *testing.T) {
			g := newGated()
			h := limit(g)
			go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
			synctest.Wait()
			n := memhttp.NewNetwork(t)
			n.Serve(t, "mem.test", h)
			conn, err := n.DialContext(t.Context(), "tcp", "mem.test:80")
			require.NoError(t, err)
			defer conn.Close()
			reader := bufio.NewReader(conn)
			const size = 256 << 10
			for range 3 {
				require.NoError(t, errOf(fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size)))
				resp, err := http.ReadResponse(reader, nil) // before a byte of the body is sent
				require.NoError(t, err)
				require.NoError(t, errOf(io.ReadAll(resp.Body)))
				require.NoError(t, resp.Body.Close())
				require.Contains(t, []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}, resp.StatusCode)
				require.False(t, resp.Close)
				require.NoError(t, errOf(conn.Write(make([]byte, size))))
			}
			close(g.gate)
		})
	}
}

// A10: nothing runs at rest, and idle hours change nothing.
func TestShedderAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if a goroutine is left
		s := new(admission.Shedder)
		h := s.Handler(taking(10 * ms))
		asks(t, h, 200)
		before := s.State()
		sleep(1000 * time.Hour)
		require.Equal(t, before, s.State())
		require.Equal(t, http.StatusNoContent, ask(t, h, within(t, 20*ms)).StatusCode)
	})
}

// Under the race detector: no slot is lost or given twice.
func TestShedderStress(t *testing.T) {
	s := &admission.Shedder{Max: 8, Initial: 8, Queue: 16, Tolerance: -1, Priority: admission.PriorityFromHeader}
	var inside, most atomic.Int64
	h := s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := inside.Add(1)
		defer inside.Add(-1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		switch r.Header.Get("X-Do") {
		case "panic":
			panic(http.ErrAbortHandler)
		case "504":
			w.WriteHeader(http.StatusGatewayTimeout)
		default:
			<-time.After(50 * time.Microsecond)
		}
	}))
	var all sync.WaitGroup
	for n := range 64 {
		all.Go(func() {
			for i := range 200 {
				func() {
					defer func() { _ = recover() }()
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+(n+i)%5)*200*time.Microsecond)
					defer cancel()
					if i%7 == 0 {
						cancel()
					}
					r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
					r.Header.Set("X-Request-Priority", []string{"batch", "", "critical"}[i%3])
					r.Header.Set("X-Do", []string{"", "panic", "504", ""}[(i+n)%4])
					h.ServeHTTP(httptest.NewRecorder(), r)
				}()
			}
		})
	}
	all.Wait()
	state := s.State()
	require.Zero(t, state.InFlight)
	require.Zero(t, state.Queued)
	require.EqualValues(t, 64*200, state.Admitted+state.Rejected)
	require.LessOrEqual(t, most.Load(), int64(8))
}

// The latency of a failed or canceled request is no sample.
func TestShedder_failuresAreNoSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(admission.Shedder)
		h := s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("X-Do") {
			case "504":
				sleep(time.Second)
				w.WriteHeader(http.StatusGatewayTimeout)
			case "gone":
				<-r.Context().Done()
			case "panic":
				sleep(time.Second)
				panic(http.ErrAbortHandler)
			default:
				sleep(10 * ms)
			}
		}))
		asks(t, h, 100)
		before := s.State()
		require.Equal(t, 10*ms, before.BaselineLatency)
		for range 200 {
			ask(t, h, header("X-Do", "504"))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			ask(t, h, header("X-Do", "gone"), func(r *http.Request) { *r = *r.WithContext(ctx) })
			require.Panics(t, func() { ask(t, h, header("X-Do", "panic")) })
		}
		require.Equal(t, before.BaselineLatency, s.State().BaselineLatency)
		require.Equal(t, before.Limit, s.State().Limit)
		require.Zero(t, s.State().InFlight)
	})
}

// A1: if the body of a rejected request does not arrive, its connection is closed. The rest of the body is
// not read as another request, and a client that resets the connection causes no panic of net/http.
func TestRejection_bodyDoesNotCome(t *testing.T) {
	const hidden = "GET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n"
	for name, then := range map[string]func(t *testing.T, c net.Conn){
		"the body comes late: not served": func(t *testing.T, c net.Conn) {
			time.Sleep(300 * ms)
			_, _ = io.WriteString(c, hidden)
			require.Error(t, errOf(c.Read(make([]byte, 1))))
		},
		"the body never comes: closed": func(t *testing.T, c net.Conn) {
			require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
			_, err := c.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF, "the connection is still open")
		},
		"the client resets: no panic": func(t *testing.T, c net.Conn) {
			memhttp.Reset(c.(*memhttp.Conn))
			synctest.Wait()
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			var served atomic.Int64
			quota := &admission.Quota{Limit: 1, Window: time.Hour}
			mux := http.NewServeMux()
			mux.Handle("/limited", quota.Handler(http.NotFoundHandler()))
			mux.HandleFunc("/hidden", func(http.ResponseWriter, *http.Request) { served.Add(1) })
			var logged strings.Builder
			server := memhttp.NewServer(t, mux, func(s *memhttp.Server) {
				s.Config.ReadTimeout, s.Config.IdleTimeout = 50*ms, time.Minute
				s.Config.ErrorLog = log.New(&logged, "", 0)
			})
			conn, err := server.Net.DialContext(t.Context(), "tcp", "mem.test:80")
			require.NoError(t, err)
			require.NoError(t, errOf(quota.Take(t.Context(), "192.0.2.1", 1)))
			require.NoError(t, errOf(fmt.Fprintf(conn, "POST /limited HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n", len(hidden))))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusTooManyRequests, resp.StatusCode, "before the body")
			then(t, conn)
			server.Close()
			require.Zero(t, served.Load())
			require.NotContains(t, logged.String(), "panic")
		})
	}
}

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

// A14: over real sockets, at half of what its workers can do, a server rejects nothing. Each
// request has 5 s, so that a pause of the machine is not an overload.
func TestShedder_rejectsNothingAtHalfLoadOverSockets(t *testing.T) {
	const workers, service, requests = 8, 10 * ms, 800
	slots := make(chan struct{}, workers)
	s := &admission.Shedder{Priority: admission.PriorityFromHeader}
	server := httptest.NewServer(resilienthttp.DeadlineHandler{Next: s.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		slots <- struct{}{}
		sleep(time.Duration(rand.ExpFloat64() * float64(service)))
		<-slots
		w.WriteHeader(http.StatusNoContent)
	}))})
	defer server.Close()
	client := &http.Client{Transport: resilienthttp.NewBase()}
	defer client.CloseIdleConnections()
	var served atomic.Int64
	var calls sync.WaitGroup
	every := time.NewTicker(2 * service / workers)
	defer every.Stop()
	for range requests {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
			if err != nil {
				return
			}
			r.Header.Set("X-Request-Timeout-Ms", "5000")
			resp, err := client.Do(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusNoContent {
				served.Add(1)
			}
		})
		<-every.C
	}
	calls.Wait()
	require.EqualValues(t, requests, served.Load())
	require.Zero(t, s.State().Rejected)
}

// A9: if handlers only compute, critical requests do not wait for batch either. Requests that
// wait in Go's scheduler reach the Shedder before the next handler begins.
//
// The test has one processor. Without the yield, each request is served before the next one
// arrives. The scheduler sometimes prefers a goroutine that has just yielded, so one attempt
// in ten must succeed.
func TestShedder_queuesRequestsThatCompute(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const attempts, enough, each = 200, 20, 4
	well := 0
	for range attempts {
		b := &bursts{each: each}
		b.run(t)
		first, second := b.known[0] == 3*each, b.known[1] == 6*each-1
		if first && second && slices.IsSorted(b.served[2:]) {
			if well++; well == enough {
				return
			}
		}
	}
	require.Failf(t, "requests wait in the scheduler", "they wait in the Shedder in only %d of %d attempts", well, attempts)
}

// bursts sends a number of requests of each class at once, the least important first, and the
// same again while the first one is served.
type bursts struct {
	each   int
	known  []int    // requests in the Shedder when each handler began
	served []string // their classes
}

func (b *bursts) run(t *testing.T) {
	t.Helper()
	s := &admission.Shedder{Max: 1, Queue: 6 * b.each, MaxWait: time.Hour, Priority: admission.PriorityFromHeader}
	var all sync.WaitGroup
	var come func()
	computed := 0
	h := s.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		state := s.State()
		b.known = append(b.known, state.InFlight+state.Queued)
		b.served = append(b.served, r.Header.Get("X-Name"))
		if len(b.served) == 1 {
			come()
		}
		for began := time.Now(); time.Since(began) < 50*time.Microsecond; {
			computed++
		}
	}))
	come = func() {
		for _, class := range []struct{ name, priority string }{{"3", "batch"}, {"2", ""}, {"1", "critical"}} {
			for range b.each {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
				r.Header.Set("X-Name", class.name)
				r.Header.Set("X-Request-Priority", class.priority)
				all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), r) })
			}
		}
	}
	come()
	all.Wait()
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
