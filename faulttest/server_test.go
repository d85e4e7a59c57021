package faulttest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// Close ends faults that hang, waits for handlers, and may be called again.
func TestServer_Close(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, unit time.Duration, start func(http.Handler) *faulttest.Server) {
		returned := false
		srv := start(faulttest.Sequence(
			faulttest.Hang,
			faulttest.Stalled,
			faulttest.Reply{Delay: 1000 * time.Hour},
			faulttest.Reply{Body: "12", Pause: 1000 * time.Hour},
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				time.Sleep(2 * unit)
				returned = true
			}),
		))
		done := make(chan error)
		for n := range 5 {
			go func() {
				_, _, err := send(t, srv.Client(), http.MethodPost, srv.URL, "x")
				done <- err
			}()
			await(t, unit, func() bool { return srv.Total() == n+1 && srv.Requests()[n].BodyRead || n == 4 })
		}
		await(t, unit, func() bool { return srv.Total() == 5 })
		begin := time.Now()
		srv.Close()
		assert.True(t, returned)
		srv.Close()
		assert.Less(t, time.Since(begin), 100*time.Hour)
		for range 5 {
			require.Error(t, <-done)
		}
		for _, q := range srv.Requests() {
			assert.False(t, q.EndedAt.IsZero())
			assert.Contains(t, q.Outcome(), "server closed")
		}
		_, _, err := send(t, srv.Client(), http.MethodGet, srv.URL, "")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	})
}

// Start panics for invalid options, and net/http's log goes to the test.
func TestServer_Start(t *testing.T) {
	t.Parallel()
	srv := faulttest.New(t, nil)
	assert.PanicsWithValue(t, "faulttest: Server started twice", func() { srv.Start(t) })
	assert.PanicsWithValue(t, "faulttest: Server.Network is not in memory, or not started", func() {
		(&faulttest.Server{Network: srv}).Start(t)
	})

	for _, host := range []string{"http://api.test", "api.test/v1"} {
		assert.PanicsWithValue(t, fmt.Sprintf("faulttest: Server.Host is %q, want a name such as api.test", host), func() {
			(&faulttest.Server{InMemory: true, Host: host}).Start(t)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		first := faulttest.NewInMemory(t, nil)
		assert.PanicsWithValue(t, "faulttest: Server.Host: fault.test is the host of Server.Network already", func() {
			(&faulttest.Server{Network: first}).Start(t)
		})
		assert.PanicsWithValue(t, "faulttest: a socket stops the clock of a synctest bubble: use NewInMemory or Server.InMemory", func() {
			faulttest.New(t, nil) // a test with a wait would hang
		})
	})
	new(faulttest.Server).Close() // it was not started

	var fake fakeTB
	oops := faulttest.New(&fake, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oops") }))
	_, _, err := send(t, oops.Client(), http.MethodPost, oops.URL, "")
	require.ErrorIs(t, err, io.EOF)
	for _, end := range slices.Backward(fake.cleanups) {
		end()
	}
	assert.Contains(t, fake.logged(), oops.URL+": http: panic serving")
	assert.Empty(t, fake.failures())

	require.NoError(t, errOf(io.WriteString(faulttest.ServerLog(oops), "too late")))
	assert.NotContains(t, fake.logged(), "too late", "a T must not be used after its test")
}

// A nil TB is for programs that are not tests.
func TestServer_withoutTB(t *testing.T) {
	t.Parallel()
	for _, start := range []func(faulttest.TB, http.Handler) *faulttest.Server{faulttest.New, faulttest.NewInMemory} {
		srv := start(nil, faulttest.Script{{Route: "/bad", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oops") })}, {Route: "BAD"}})
		assert.Equal(t, 500, status(t, srv, http.MethodGet, "/"))
		_, _, err := send(t, srv.Client(), http.MethodPost, srv.URL+"/bad", "")
		require.Error(t, err)
		srv.Close()
		assert.False(t, srv.AssertRequests(nil, 1))
		assert.False(t, srv.AssertAttempts(nil, 2))
		assert.False(t, srv.AssertKeys(nil, 2))
		assert.False(t, srv.AssertSpacing(nil, time.Hour, 0))
		assert.False(t, srv.AssertDeadlines(nil, time.Time{}))
		assert.True(t, srv.AssertBodies(nil))
		assert.False(t, new(faulttest.Idempotent).AssertExactlyOnce(nil, 1))
	}
}

// Two servers share a network.
func TestServer_Network(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		login := &faulttest.Server{InMemory: true, Host: "login.test:8080", Script: faulttest.Redirect(307, "http://api.test/x")}
		login.Start(t)
		api := &faulttest.Server{Network: login, Host: "api.test", Script: faulttest.Reply{Body: "api", Delay: time.Hour}}
		api.Start(t)
		assert.Equal(t, "http://login.test:8080", login.URL)
		for _, srv := range []*faulttest.Server{login, api} {
			_, text := answered(t, srv.Client(), http.MethodPost, login.URL, "hello")
			assert.Equal(t, "api", text)
		}
		login.AssertRequests(t, 2)
		api.AssertAttempts(t, 2)
		login.Close() // ends neither the network nor the other server
		assert.Equal(t, 200, status(t, api, http.MethodGet, "/"))
	})
}

// Close of the server ends all goroutines.
func TestServer_doesNotLeakGoroutines(t *testing.T) {
	before := goroutines()
	for range 3 {
		srv := faulttest.New(nil, faulttest.Sequence(
			faulttest.OK("fine"), faulttest.ResetAfterRead, faulttest.ResetMidBody, faulttest.Truncated, faulttest.CloseAfterRead, faulttest.Hang,
		))
		srv.Client().Timeout = 20 * time.Millisecond
		for range 7 {
			_, _, _ = send(t, srv.Client(), http.MethodPost, srv.URL, "x")
		}
		srv.Close()
	}
	require.Eventually(t, func() bool { return goroutines() <= before }, time.Minute, 10*time.Millisecond)
}

// goroutines returns the number of goroutines of this package or of net/http.
func goroutines() int {
	buf := make([]byte, 1<<20)
	n := 0
	for g := range bytes.SplitSeq(buf[:runtime.Stack(buf, true)], []byte("\n\n")) {
		if bytes.Contains(g, []byte("net/http.(*persistConn)")) || bytes.Contains(g, []byte("net/http.(*conn).serve")) || bytes.Contains(g, []byte("faulttest.listen")) {
			n++
		}
	}
	return n
}

// Close logs that it waits for a handler.
func TestServer_slowClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fake fakeTB
		srv := faulttest.NewInMemory(&fake, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) }))
		go func() { _, _, _ = send(t, srv.Client(), http.MethodGet, srv.URL, "") }()
		synctest.Wait()
		srv.Close()
		assert.Contains(t, fake.logged(), "Close has waited 5s for handlers that do not return")
	})
}

// The time of the cancellation is recorded, also if the execution continues.
func TestRequest_CanceledAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		charges := &faulttest.Idempotent{Latency: time.Hour}
		srv := faulttest.NewInMemory(t, faulttest.Sequence(faulttest.LoseResponse(charges), charges))
		srv.Client().Timeout = time.Minute
		for range 2 {
			_, _, _ = send(t, srv.Client(), http.MethodPost, srv.URL, "", "Idempotency-Key", "k")
			time.Sleep(time.Second)
		}
		srv.AssertSpacing(t, time.Second, time.Second)
		assert.Equal(t, []string{"executed, client canceled, in progress", "409 in flight"}, outcomes(&srv.Log))
		time.Sleep(time.Hour)
		srv.AssertSpacing(t, time.Second, time.Second)
		assert.Equal(t, []string{"executed, reset after read, client canceled", "409 in flight"}, outcomes(&srv.Log))
		q := srv.Requests()[0]
		assert.Equal(t, time.Minute, q.CanceledAt.Sub(q.ReceivedAt))
		assert.Equal(t, time.Hour, q.EndedAt.Sub(q.ReceivedAt))
	})
}

// A field that is set after Start has no effect, so it fails the test and each request.
func TestServer_fieldSetAfterStart(t *testing.T) {
	script := faulttest.Script{{Handler: faulttest.Status(503)}}
	for _, row := range []struct {
		name string
		set  func(*faulttest.Server)
		want string
	}{
		{"none: no error", func(s *faulttest.Server) { s.Script = script }, ""},
		{"Script", func(s *faulttest.Server) { s.Script = faulttest.Script{{Handler: faulttest.Status(503)}} }, "Script"},
		{"no Script", func(s *faulttest.Server) { s.Script = nil }, "Script"},
		{"Host", func(s *faulttest.Server) { s.Host = "api.test" }, "Host"},
		{"InMemory", func(s *faulttest.Server) { s.InMemory = !s.InMemory }, "InMemory"},
		{"Network", func(s *faulttest.Server) { s.Network = new(faulttest.Server) }, "Network"},
		{"a field of the Log", func(s *faulttest.Server) { s.KeyHeader = "PayPal-Request-Id" }, "KeyHeader"},
		{"GroupCalls", func(s *faulttest.Server) { s.GroupCalls = func(*faulttest.Request) string { return "" } }, "GroupCalls"},
		{"Skew", func(s *faulttest.Server) { s.Skew = time.Hour }, "Skew"},
	} {
		for _, inMemory := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in memory %t", row.name, inMemory), func(t *testing.T) {
				tb := new(fakeTB)
				srv := &faulttest.Server{Script: script, InMemory: inMemory}
				srv.Start(tb)
				row.set(srv)
				resp, err := srv.Client().Get(srv.URL)
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				for _, end := range tb.cleanups {
					end()
				}
				if row.want == "" {
					require.Equal(t, 503, resp.StatusCode)
					require.Empty(t, tb.failures())
					return
				}
				text := "faulttest: Server." + row.want + " was set after Start (want it in a Server literal, before Start)"
				require.Equal(t, 500, resp.StatusCode)
				require.Equal(t, text, strings.TrimSpace(string(body)))
				require.Equal(t, text, tb.failures(), "once")
			})
		}
	}
	t.Run("no request since: the end of the test reports it", func(t *testing.T) {
		tb := new(fakeTB)
		srv := faulttest.NewInMemory(tb, nil)
		srv.Host = "api.test"
		for _, end := range tb.cleanups {
			end()
		}
		require.Contains(t, tb.failures(), "Server.Host was set after Start")
	})
}

// A host that is not the server's is an error of its own: a test neither reaches a real provider, nor
// takes a wrong URL for a server that is down.
func TestServer_otherHost(t *testing.T) {
	for _, inMemory := range []bool{false, true} {
		t.Run(fmt.Sprintf("in memory %t", inMemory), func(t *testing.T) {
			srv := &faulttest.Server{InMemory: inMemory}
			srv.Start(t)
			for _, url := range []string{"http://api.example.com/charges", "http://192.0.2.1:8080"} {
				_, err := srv.Client().Get(url)
				dns, ok := errors.AsType[*net.DNSError](err)
				require.True(t, ok, "%v", err)
				require.True(t, dns.IsNotFound)
				require.ErrorContains(t, err, "not a host of this faulttest.Server (want "+srv.URL+")")
				_, err = (&http.Client{Transport: &resilienthttp.Transport{Base: srv.Transport()}}).Get(url)
				failed, ok := errors.AsType[*resilienthttp.Error](err)
				require.True(t, ok, "%v", err)
				require.Len(t, failed.Attempts, 1, "a Transport does not repeat it")
				require.ErrorContains(t, err, "not a host of this faulttest.Server (want "+srv.URL+")")
			}
			require.Zero(t, srv.Total())
			srv.Close()
			require.ErrorIs(t, errOf(srv.Client().Get(srv.URL)), syscall.ECONNREFUSED, "its own host after Close")
		})
	}
	t.Run("another server on its Network, or on a socket: reached", func(t *testing.T) {
		first := &faulttest.Server{Host: "one.test", InMemory: true}
		first.Start(t)
		second := &faulttest.Server{Host: "two.test:8443", Network: first}
		second.Start(t)
		one, two := faulttest.New(t, nil), faulttest.New(t, nil)
		for client, url := range map[*http.Client]string{first.Client(): second.URL, one.Client(): two.URL} {
			resp, err := client.Get(url)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
	})
}
