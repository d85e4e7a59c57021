package endpoints_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// done is a call of a load.
type done struct {
	at       time.Duration // since the start of the load
	took     time.Duration
	ok       bool
	endpoint string // that of the response
}

// load makes calls at random times, at a mean rate, each with a deadline.
type load struct {
	rate     float64
	length   time.Duration
	method   string
	deadline time.Duration
}

func (l load) run(t *testing.T, transport http.RoundTripper, url string, at map[time.Duration]func()) []done {
	t.Helper()
	var mu sync.Mutex
	var all []done
	var calls sync.WaitGroup
	begin := time.Now()
	for when, f := range at {
		time.AfterFunc(when, f)
	}
	for time.Since(begin) < l.length {
		pause := 1 / l.rate
		if l.rate > 10 { // with few calls, chance would decide when the next one is
			pause *= rand.ExpFloat64()
		}
		time.Sleep(time.Duration(pause * float64(time.Second)))
		calls.Go(func() {
			d := done{at: time.Since(begin)}
			ctx, cancel := context.WithTimeout(context.Background(), l.deadline)
			defer cancel()
			var body io.Reader
			if l.method == http.MethodPost {
				body = strings.NewReader("{}")
			}
			resp, err := transport.RoundTrip(newRequest(ctx, t, l.method, url, body))
			d.took = time.Since(begin) - d.at
			if err == nil {
				for _, a := range resilienthttp.Attempts(resp) {
					if a.Response == resp {
						d.endpoint = a.Endpoint
					}
				}
				d.ok = resp.StatusCode == http.StatusOK && resp.Body.Close() == nil
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, d)
		})
	}
	calls.Wait()
	return all
}

// between selects the calls that began in a part of the load.
func between(all []done, from, to time.Duration) (part []done) {
	for _, d := range all {
		if d.at >= from && d.at < to {
			part = append(part, d)
		}
	}
	return part
}

func share(all []done, is func(done) bool) float64 {
	n := 0
	for _, d := range all {
		if is(d) {
			n++
		}
	}
	return float64(n) / float64(max(len(all), 1))
}

func succeeded(d done) bool { return d.ok }

func p99(all []done) time.Duration {
	var took []time.Duration
	for _, d := range all {
		took = append(took, d.took)
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// N3: the first endpoint is down for a minute, and the second is healthy. The success is at least .999.
// After its circuit has opened, a call costs what it costs on a healthy list, and the traffic is back 5 s
// after it recovers.
func TestTransport_firstDown(t *testing.T) {
	const latency = 40 * time.Millisecond
	for _, row := range []struct {
		name    string
		down    http.RoundTripper
		method  string
		shared  bool
		rate    float64
		opens   time.Duration // by when its circuit is open
		success float64
	}{
		{"refused, GET", refused, http.MethodGet, false, 25, 5 * time.Second, .999},
		{"reset, GET", reset, http.MethodGet, false, 25, 5 * time.Second, .999},
		{"503, GET", answers(503, nil), http.MethodGet, false, 25, 5 * time.Second, .999},
		{"503 with Retry-After, GET", answers(503, http.Header{"Retry-After": {"2"}}), http.MethodGet, false, 25, 5 * time.Second, .999},
		{"429, GET", answers(429, nil), http.MethodGet, false, 25, 5 * time.Second, .999},
		{"429 with Retry-After, GET", answers(429, http.Header{"Retry-After": {"2"}}), http.MethodGet, false, 25, 5 * time.Second, .999},
		{"429, 100 GETs in a second", answers(429, nil), http.MethodGet, false, 100, 5 * time.Second, .999},
		{"500, 100 GETs in a second", answers(500, nil), http.MethodGet, false, 100, 5 * time.Second, .999},
		{"hangs, GET", hangs, http.MethodGet, false, 50, 25 * time.Second, .999},
		{"refused, POST", refused, http.MethodPost, false, 25, 5 * time.Second, .999},
		{"429, POST", answers(429, nil), http.MethodPost, false, 25, 5 * time.Second, .999},
		{"503, POST with shared keys", answers(503, nil), http.MethodPost, true, 25, 5 * time.Second, .999},
		{"503, POST", answers(503, nil), http.MethodPost, false, 50, 5 * time.Second, .95},
		{"refused, two GETs in a second", refused, http.MethodGet, false, 2, 20 * time.Second, .999},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			slow := faulttest.Reply{Body: "ok", Delay: latency}
			l := newList(t, func(tr *endpoints.Transport) { tr.SharedKeys = row.shared }, slow, slow)
			const fails, recovers, ends = 15 * time.Second, 75 * time.Second, 90 * time.Second
			all := load{rate: row.rate, length: ends, method: row.method, deadline: 10 * time.Second}.run(t, l, "http://a.test/x", map[time.Duration]func(){
				fails:    func() { l.setDown("a.test", row.down) },
				recovers: func() { l.setDown("a.test", nil) },
			})
			healthy, outage := between(all, 0, fails), between(all, fails, recovers)
			open, back := between(all, fails+row.opens, recovers), between(all, recovers+5*time.Second, ends)
			report := fmt.Sprintf("success %.4f, p99 healthy %v, down %v, open %v, back %.3f", share(outage, succeeded), p99(healthy), p99(outage), p99(open),
				share(back, func(d done) bool { return d.endpoint == "a" }))
			t.Log(report)
			assert.GreaterOrEqual(t, share(outage, succeeded), row.success, report)
			assert.LessOrEqual(t, p99(open), p99(healthy)*3/2, report)
			assert.GreaterOrEqual(t, share(back, func(d done) bool { return d.endpoint == "a" }), .95, report)
			assert.Zero(t, share(healthy, func(d done) bool { return d.endpoint != "a" }))
		})
	}
}

// hostile is a server on a socket that reads a request and then does what it wants with the connection.
// requests counts what it has read to the end.
func hostile(t *testing.T, requests *atomic.Int32, act func(net.Conn)) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		requests.Add(1)
		conn, _, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			act(conn)
			_ = conn.Close()
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// N1: whatever the first server does to the connection, a GET has a result before its deadline, and a
// POST that the first server has read is never sent to the second, unless the first says that it did
// nothing.
func TestTransport_hostile(t *testing.T) {
	says := func(text string) func(net.Conn) {
		return func(conn net.Conn) { _, _ = io.WriteString(conn, text) }
	}
	for _, row := range []struct {
		name   string
		act    func(net.Conn)
		stays  bool // the response of the first is the result of a GET
		noWork bool // the first says that it did nothing
	}{
		{"closes without a response", says(""), false, false},
		{"closes in the status line", says("HTTP/1.1 20"), false, false},
		{"closes in the headers", says("HTTP/1.1 200 OK\r\nContent-Le"), false, false},
		{"not HTTP", says("SSH-2.0-OpenSSH_9.6\r\n"), false, false},
		{"a negative Content-Length", says("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), false, false},
		{"two Content-Lengths", says("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), false, false},
		{"a body shorter than Content-Length", says("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nab"), true, false},
		{"a 500 with a body that breaks", says("HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nab"), false, false},
		{"a 429 and a close", says("HTTP/1.1 429 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), false, true},
		{"a 503 that asks to wait for years", says("HTTP/1.1 503 No\r\nRetry-After: 99999999\r\nContent-Length: 0\r\n\r\n"), false, false},
		{"a 503 that says that nothing was executed", says("HTTP/1.1 503 No\r\nRequest-Executed: ?0\r\nRetry-After: 99999999\r\nContent-Length: 0\r\n\r\n"), false, true},
		{"headers without an end", func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			for range 3 {
				if _, err := io.WriteString(conn, "X-Drip: "+strings.Repeat("a", 1<<20)+"\r\n"); err != nil {
					return
				}
			}
			_, _ = io.Copy(io.Discard, conn)
		}, false, false},
		{"a reset", func(conn net.Conn) {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
		}, false, false},
		{"a 307 to itself with a user and a port of another scheme", says("HTTP/1.1 307 No\r\nLocation: ftp://user:pass@127.0.0.1:21/x\r\nContent-Length: 0\r\n\r\n"), true, false},
		{"a Location with a line of garbage", says("HTTP/1.1 302 No\r\nLocation: http://[::1/%zz\r\nContent-Length: 0\r\n\r\n"), true, false},
		{"a 421", says("HTTP/1.1 421 No\r\nContent-Length: 0\r\n\r\n"), true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				var atFirst, atSecond atomic.Int32
				first := hostile(t, &atFirst, row.act)
				second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { atSecond.Add(1) }))
				t.Cleanup(second.Close)
				tr := pair(t, first, second.URL, nil)
				tr.Transport.Policy = resilienthttp.Policy{AttemptTimeout: 500 * time.Millisecond, MaxAttempts: 3, Backoff: resilienthttp.Constant(time.Millisecond)}
				t.Cleanup(tr.CloseIdleConnections)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				t.Cleanup(cancel)
				resp, err := tr.RoundTrip(newRequest(ctx, t, method, first+"/x", strings.NewReader("hello")))
				t.Log(resilienthttp.Explain(resp, err))
				if resp != nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					require.NoError(t, resp.Body.Close())
				}
				require.NoError(t, ctx.Err(), "it ended before the deadline")
				require.NotZero(t, atFirst.Load())
				switch {
				case method == http.MethodPost && !row.noWork:
					require.Zero(t, atSecond.Load(), "the first has the POST")
				case method == http.MethodGet && row.stays:
					require.NoError(t, err)
					require.Zero(t, atSecond.Load())
				default:
					require.NoError(t, err)
					require.Equal(t, http.StatusOK, resp.StatusCode)
					require.Equal(t, int32(1), atSecond.Load())
				}
			}
		})
	}
}

// regionLedger is the name of the variable that makes the test binary a region: its value is the file to
// which the region appends the key of each POST before it responds.
const regionLedger = "ENDPOINTS_TEST_LEDGER"

func TestMain(m *testing.M) {
	if ledger := os.Getenv(regionLedger); ledger != "" {
		err := serveRegion(ledger, os.Getenv("ENDPOINTS_TEST_ADDRESS"))
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serveRegion is a server that knows its own keys, and not those of the other region.
func serveRegion(ledger, address string) error {
	known := map[string]bool{}
	for _, key := range keysIn(ledger) {
		known[key] = true
	}
	file, err := os.OpenFile(ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	fmt.Println("listening on", listener.Addr())
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			mu.Lock()
			defer mu.Unlock()
			if key := r.Header.Get("Idempotency-Key"); !known[key] {
				known[key] = true
				_, _ = fmt.Fprintln(file, key)
				time.Sleep(3 * time.Millisecond) // work that a kill interrupts after its effect
			}
		}
		w.WriteHeader(http.StatusOK)
	}))
}

func keysIn(ledger string) []string {
	content, _ := os.ReadFile(ledger)
	return strings.Fields(string(content))
}

// startRegion starts a process, and returns when it listens.
func startRegion(t *testing.T, ledger, address string) (*exec.Cmd, string) {
	t.Helper()
	region := exec.Command(os.Args[0])
	region.Env = append(os.Environ(), regionLedger+"="+ledger, "ENDPOINTS_TEST_ADDRESS="+address)
	region.Stderr = os.Stderr
	out, err := region.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, region.Start())
	t.Cleanup(func() { _ = region.Process.Kill(); _ = region.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return region, strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
}

// N1, N3: two real processes, of which the first is killed with SIGKILL again and again. No GET fails.
// No POST is done twice, and one that fails says so.
func TestTransport_kill9(t *testing.T) {
	dir := t.TempDir()
	ledgers := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	first, firstAt := startRegion(t, ledgers[0], "127.0.0.1:0")
	_, secondAt := startRegion(t, ledgers[1], "127.0.0.1:0")
	tr := pair(t, "http://"+firstAt, "http://"+secondAt, nil)
	defer tr.CloseIdleConnections()
	stop := make(chan struct{})
	var callers sync.WaitGroup
	var mu sync.Mutex
	paid, failed, at := map[string]bool{}, 0, map[string]int{}
	for caller := range 8 {
		callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key, method := fmt.Sprintf("%d-%d", caller, i), http.MethodGet
				if caller%2 == 0 {
					method = http.MethodPost
				}
				ctx, cancel := context.WithTimeout(resilienthttp.WithIdempotencyKey(context.Background(), key), time.Minute)
				resp, err := tr.RoundTrip(newRequest(ctx, t, method, "http://"+firstAt+"/"+key, strings.NewReader("x")))
				mu.Lock()
				switch {
				case err == nil:
					at[lastVisited(resp)]++
					if method == http.MethodPost {
						paid[key] = true
					}
					_ = resp.Body.Close()
				case method == http.MethodPost:
					failed++
				default:
					t.Errorf("a GET failed: %v", resilienthttp.Explain(resp, err))
				}
				mu.Unlock()
				cancel()
				time.Sleep(time.Millisecond)
			}
		})
	}
	answersFrom := func(region string) {
		have := func() int {
			mu.Lock()
			defer mu.Unlock()
			return at[region]
		}
		want := have() + 50
		require.Eventually(t, func() bool { return have() >= want }, time.Minute, time.Millisecond, region)
	}
	for range 3 {
		answersFrom("a")
		require.NoError(t, first.Process.Kill()) // SIGKILL
		_ = first.Wait()
		answersFrom("b")
		first, _ = startRegion(t, ledgers[0], firstAt)
	}
	close(stop)
	callers.Wait()
	done := map[string]int{}
	for _, ledger := range ledgers {
		for _, key := range keysIn(ledger) {
			done[key]++
		}
	}
	for key, times := range done {
		assert.Equal(t, 1, times, "POST %s", key)
	}
	for key := range paid {
		assert.Equal(t, 1, done[key], "POST %s had a response", key)
	}
	t.Logf("%d POSTs done, %d failed; responses from %v", len(done), failed, at)
}

// newHeldList returns a list of a and b. Their circuits open at the first failure, for five seconds.
func newHeldList(t *testing.T, maxWait time.Duration) *list {
	return newList(t, func(tr *endpoints.Transport) {
		tr.Transport.Breaker = &resilienthttp.Breaker{MaxWait: maxWait, FailureRatio: 0.01, MinRequests: 1, Probes: 1, Cooldown: 5 * time.Second, MaxCooldown: 5 * time.Second}
	}, faulttest.Status(200), faulttest.Status(200))
}

// only makes a call at one endpoint, without a retry.
func (l *list) only(ctx context.Context, name string) (*http.Response, error) {
	return l.doIn(endpoints.WithEndpoint(resilienthttp.WithSingleAttempt(ctx), name), http.MethodGet, "/", "")
}

// held returns the number of calls that wait for a circuit.
func (l *list) held() (n int) {
	for _, s := range l.Transport.Transport.State().Scopes {
		n += s.Breaker.Waiting
	}
	return n
}

// lastVisited returns the endpoint that responded.
func lastVisited(resp *http.Response) string {
	attempts := resilienthttp.Attempts(resp)
	return attempts[len(attempts)-1].Endpoint
}

// A call waits only while the circuits of all endpoints hold it, for as long as at one server. It goes to
// the first endpoint that is back.
func TestBreakerWait_endpoints(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		name     string
		maxWait  time.Duration
		down     []string // their circuits open now
		back     string   // after the cooldown
		option   func(context.Context) context.Context
		answers  string
		from, to time.Duration
	}{
		{"a is held: b at once", 0, []string{"a"}, "", nil, "b", 0, 0},
		{"b is held: a at once", 0, []string{"b"}, "", nil, "a", 0, 0},
		{"all are held, b is back: b after its cooldown", 0, []string{"a", "b"}, "b", nil, "b", 5 * s, 7*s + s/2},
		{"all are held, none is back: an error", 0, []string{"a", "b"}, "", nil, "", 10 * s, 10 * s},
		{"all are held, MaxWait: as long", 4 * s, []string{"a", "b"}, "b", nil, "", 4 * s, 4 * s},
		{"all are held, a single attempt: an error at once", 0, []string{"a", "b"}, "b", resilienthttp.WithSingleAttempt, "", 0, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := newHeldList(t, row.maxWait)
			ctx := t.Context()
			if row.option != nil {
				ctx = row.option(ctx)
			}
			for _, name := range row.down {
				l.setDown(name+".test", refused)
				require.Error(t, errOf(l.only(t.Context(), name)))
			}
			if row.back != "" {
				l.setDown(row.back+".test", nil)
			}
			begun := time.Now()
			resp, err := l.doIn(ctx, http.MethodGet, "/", "")
			require.GreaterOrEqual(t, time.Since(begun), row.from)
			require.LessOrEqual(t, time.Since(begun), row.to)
			if row.answers == "" {
				require.ErrorIs(t, err, resilienthttp.ErrBreakerOpen)
				require.True(t, resilienthttp.NotBefore(resp, err).After(time.Now()))
			} else {
				require.NoError(t, err)
				require.Equal(t, row.answers, lastVisited(resp))
			}
			if row.maxWait > 0 {
				require.ErrorContains(t, err, "the server has failed for 4s, waited 4s")
			}
			require.Zero(t, l.held())
		})
	}
}

// A call that waits at one endpoint looks at the others once a second.
func TestBreakerWait_endpointsLookAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const s = time.Second
		l := newHeldList(t, 0)
		for _, name := range []string{"a", "b"} {
			l.setDown(name+".test", refused)
			_, _ = l.only(t.Context(), name)
		}
		begun := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(begun.Add(d))) }
		var calls sync.WaitGroup
		defer calls.Wait()
		at(7 * s) // a probe at a fails: the next one may follow after 12 s
		_, _ = l.only(t.Context(), "a")
		at(9 * s) // a probe at b responds after 11.5 s. Before 14 s no other one may follow
		l.setDown("b.test", roundTripper(func(req *http.Request) (*http.Response, error) {
			at(11*s + s/2)
			return l.servers["a.test"].Transport().RoundTrip(req)
		}))
		calls.Go(func() {
			assert.NoError(t, errOf(l.only(t.Context(), "b")))
		})
		at(9*s + 3*s/4)
		l.setDown("b.test", nil)
		resp, err := l.get("/")
		require.NoError(t, err)
		require.Equal(t, "b", visited(resp, err))
		require.GreaterOrEqual(t, time.Since(begun), 11*s+s/2)
		require.LessOrEqual(t, time.Since(begun), 12*s)
		calls.Wait()
		require.Zero(t, l.held())
	})
}

// 8. A retry that moves waits for the circuits of endpoints that the call has not tried, although the circuit of the first
// one is closed: b's opens while the response of a is drained.
func TestAttack_movesWaitsAlthoughAnotherIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList(t, func(tr *endpoints.Transport) {
			tr.Transport.Breaker = &resilienthttp.Breaker{FailureRatio: 0.7, MinRequests: 2, Probes: 1, Cooldown: 5 * time.Second, MaxCooldown: 5 * time.Second}
		}, faulttest.Status(200), faulttest.Status(200))
		for range 10 {
			require.NoError(t, errOf(l.only(t.Context(), "a")))
		}
		l.setDown("a.test", roundTripper(func(r *http.Request) (*http.Response, error) { // one failure
			l.setDown("a.test", nil)
			blocks, _ := io.Pipe()
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: blocks, Request: r}, nil
		}))
		l.setDown("b.test", refused)
		time.AfterFunc(50*time.Millisecond, func() {
			_, _ = l.only(t.Context(), "b")
			_, _ = l.only(t.Context(), "b")
		})
		begun := time.Now()
		resp, err := l.get("/")
		t.Log(resilienthttp.Explain(resp, err))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Less(t, time.Since(begun), 2*time.Second, "a is healthy and closed")
	})
}

// A clock that is set back does not keep POSTs from probing: each synctest bubble begins at the same time.
func TestTransport_clockSetBack(t *testing.T) {
	var working atomic.Bool
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Host == "a.test" && !working.Load() {
			return refused.RoundTrip(req)
		}
		return answers(200, nil).RoundTrip(req)
	})
	tr := pair(t, "http://a.test", "http://b.test", base)
	post := func() string {
		resp, err := send(t, tr, http.MethodPost, "http://a.test/x", "{}")
		require.NoError(t, err)
		return visited(resp, err)
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour)
		require.NoError(t, errOf(send(t, tr, http.MethodGet, "http://a.test/x", "")))
	})
	synctest.Test(t, func(t *testing.T) {
		for range 100 { // opens the circuit
			post()
			time.Sleep(100 * time.Millisecond)
		}
		working.Store(true)
		for range 100 {
			post()
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(t, "a", post())
	})
}
