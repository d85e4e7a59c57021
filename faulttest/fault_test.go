package faulttest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// net/http retries if a reused connection breaks. Resets reach the client nevertheless.
func TestFault_onReusedConnections(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		fault  faulttest.Fault
		alive  bool
		fails  error
		reused string
	}{
		{faulttest.ResetBeforeRead, true, syscall.ECONNRESET, "1 false, 1 true"},
		{faulttest.ResetAfterRead, true, syscall.ECONNRESET, "1 false, 1 true"},
		{faulttest.CloseAfterRead, true, nil, "1 false, 1 true, 2 false"},
		{faulttest.ResetAfterRead, false, syscall.ECONNRESET, "1 false, 2 false"},
		{faulttest.CloseAfterRead, false, io.EOF, "1 false, 2 false"},
	} {
		t.Run(fmt.Sprint(row.fault, row.alive), func(t *testing.T) {
			t.Parallel()
			onBothServers(t, func(t *testing.T, _ time.Duration, start func(http.Handler) *faulttest.Server) {
				srv := start(faulttest.Sequence(faulttest.Status(503), row.fault, faulttest.OK("")))
				srv.Transport().DisableKeepAlives = !row.alive
				hints := 0
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
					Got1xxResponse: func(int, textproto.MIMEHeader) error { hints++; return nil },
				})
				for _, fails := range []error{nil, row.fails} {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader("x"))
					require.NoError(t, err)
					req.Header.Set("Idempotency-Key", "k")
					resp, err := srv.Client().Do(req)
					require.ErrorIs(t, err, fails)
					if err == nil {
						resp.Body.Close()
					}
				}
				assert.Equal(t, row.alive && row.fails != nil, hints == 1, "%d times 102", hints)
				var conns []string
				for _, q := range srv.Requests() {
					conns = append(conns, fmt.Sprint(q.Conn, q.Reused))
				}
				assert.Equal(t, row.reused, strings.Join(conns, ", "))
			})
		})
	}
}

// The client cancels before it has sent the whole request.
func TestServer_clientCancelsDuringUpload(t *testing.T) {
	for name, h := range map[string]http.Handler{"reply": faulttest.OK(""), "idempotent": new(faulttest.Idempotent)} {
		bubble.Run(t, name, func(t *testing.T) {
			srv := faulttest.NewInMemory(t, h)
			r, w := io.Pipe()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, r)
			require.NoError(t, err)
			gone := errors.New("gone")
			go func() {
				_, _ = io.WriteString(w, "half")
				time.Sleep(time.Hour)
				_ = w.CloseWithError(gone)
			}()
			require.ErrorIs(t, errOf(srv.Client().Do(req)), gone)
			synctest.Wait()
			q := srv.Requests()[0]
			assert.Equal(t, "half", string(q.Body))
			assert.False(t, q.BodyRead)
			assert.Zero(t, q.Status)
			assert.False(t, q.EndedAt.IsZero())
		})
	}
}

// Handlers and Log work on other servers.
func TestLog_onOtherServers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		start func(*httptest.Server)
		http2 bool
	}{
		{name: "plain", start: (*httptest.Server).Start},
		{name: "TLS", start: (*httptest.Server).StartTLS},
		{name: "HTTP/2", start: func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }, http2: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var log faulttest.Log
			s := httptest.NewUnstartedServer(log.Record(faulttest.Script{
				{Route: "/reset", Handler: faulttest.ResetAfterRead},
				{Route: "/early", Handler: faulttest.ResetBeforeRead},
				{Route: "/mid", Handler: faulttest.Reply{Body: "12345678", Fault: faulttest.ResetMidBody}},
				{Route: "/cut", Handler: faulttest.Reply{Body: "12345678", Fault: faulttest.Truncated}},
				{Handler: faulttest.OK("fine")},
			}))
			s.Config.ErrorLog = nil
			row.start(s)
			t.Cleanup(s.Close)
			c := s.Client()

			_, text := answered(t, c, http.MethodPost, s.URL, "hello")
			assert.Equal(t, "fine", text)
			for _, path := range []string{"/reset", "/early", "/mid", "/cut"} {
				resp, text, err := send(t, c, http.MethodPost, s.URL+path, "hello")
				require.Error(t, err, path)
				switch path {
				case "/mid":
					require.NotNil(t, resp)
					assert.Equal(t, "1234", text)
					if !row.http2 {
						require.ErrorIs(t, err, syscall.ECONNRESET)
					}
				case "/cut":
					require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				default:
					assert.Nil(t, resp)
					if !row.http2 {
						require.ErrorIs(t, err, syscall.ECONNRESET)
					}
				}
			}
			list := log.Requests()
			require.Len(t, list, 5)
			assert.Equal(t, "200", list[0].Outcome())
			assert.Equal(t, "reset after read", list[1].Outcome())
			assert.Equal(t, "reset before read", list[2].Outcome())
			assert.Equal(t, "hello", string(list[0].Body))
			if row.http2 {
				assert.True(t, list[4].Reused, "streams of one connection")
			}
		})
	}
}

// Without a connection a fault panics with http.ErrAbortHandler.
func TestFault_withoutServer(t *testing.T) {
	t.Parallel()
	for _, f := range []faulttest.Fault{faulttest.ResetBeforeRead, faulttest.ResetAfterRead, faulttest.CloseAfterRead, faulttest.ResetMidBody} {
		assert.PanicsWithError(t, http.ErrAbortHandler.Error(), func() {
			f.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}, f)
	}
	w := httptest.NewRecorder()
	faulttest.Reply{Status: 418, Body: "x"}.ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: new(url.URL)})
	assert.Equal(t, 418, w.Code)
	assert.Equal(t, "x", w.Body.String())

	var log faulttest.Log
	assert.Panics(t, func() {
		log.Record(faulttest.ResetAfterRead).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/a?b", nil))
	})
	assert.Equal(t, []string{"reset after read"}, outcomes(&log))
	assert.Equal(t, "/a?b", log.Requests()[0].URI)
}

func TestFault_String(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "hang", faulttest.Hang.String())
	assert.Equal(t, "no fault", faulttest.NoFault.String())
	assert.Equal(t, "Fault(99)", faulttest.Fault(99).String())
	assert.Equal(t, "Fault(-1)", faulttest.Fault(-1).String())
}

// A client that waits for 100 Continue gets it only if the handler reads the body.
func TestServer_expectContinue(t *testing.T) {
	for name, row := range map[string]struct {
		h    http.Handler
		want string
	}{
		"read":     {faulttest.OK(""), "hello"},
		"not read": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) }), ""},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			srv := faulttest.NewInMemory(t, row.h)
			srv.Transport().ExpectContinueTimeout = time.Hour
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, bytes.NewReader([]byte("hello")))
			require.NoError(t, err)
			req.Header.Set("Expect", "100-continue")
			begin := time.Now()
			resp, err := srv.Client().Do(req)
			require.NoError(t, err)
			resp.Body.Close()
			assert.Zero(t, time.Since(begin))
			assert.Equal(t, row.want, string(srv.Requests()[0].Body))
		})
	}
}

// silentWays are the networks and protocols of a silent connection.
var silentWays = []struct {
	name            string
	inMemory, http2 bool
}{
	{"HTTP/1.1 in memory", true, false},
	{"HTTP/2 in memory", true, true},
	{"HTTP/1.1 on a socket", false, false},
	{"HTTP/2 on a socket", false, true},
}

// onSilentWays runs the test on each network: in memory in a bubble, so that a call waits for a minute.
func onSilentWays(t *testing.T, script func() http.Handler, f func(t *testing.T, srv *faulttest.Server, patience time.Duration)) {
	t.Helper()
	for _, way := range silentWays {
		t.Run(way.name, func(t *testing.T) {
			run := func(t *testing.T, patience time.Duration) {
				t.Helper()
				srv := &faulttest.Server{Script: script(), InMemory: way.inMemory, HTTP2: way.http2}
				srv.Start(t)
				f(t, srv, patience)
			}
			if way.inMemory {
				synctest.Test(t, func(t *testing.T) { run(t, time.Minute) })
			} else {
				run(t, 100*time.Millisecond)
			}
		})
	}
}

// proto makes a call, and returns the protocol of its response.
func proto(client *http.Client, url string, patience time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Proto, errors.Join(err, resp.Body.Close())
}

// Silence: the open connection stays silent, for all calls that use it. A new one works.
func TestServer_Silence(t *testing.T) {
	onSilentWays(t, func() http.Handler { return faulttest.OK("ok") }, func(t *testing.T, srv *faulttest.Server, patience time.Duration) {
		got, err := proto(srv.Client(), srv.URL, time.Hour)
		require.NoError(t, err)
		require.Equal(t, srv.HTTP2, got == "HTTP/2.0", got)
		srv.Silence()
		require.ErrorIs(t, errOf(proto(srv.Client(), srv.URL, patience)), context.DeadlineExceeded)
		require.Len(t, srv.Requests(), 1, "no byte arrives")
		if srv.HTTP2 { // the client keeps the connection
			require.ErrorIs(t, errOf(proto(srv.Client(), srv.URL, patience)), context.DeadlineExceeded)
			srv.Client().CloseIdleConnections()
		}
		other := srv.Transport().Clone()
		defer other.CloseIdleConnections()
		require.NoError(t, errOf(proto(&http.Client{Transport: other}, srv.URL, time.Hour)))
		require.Len(t, srv.Requests(), 2)
		require.Equal(t, 2, srv.Requests()[1].Conn)
	})
}

// The client of a silent connection sees neither the response of a request in progress, nor the end
// of the connection by its server.
func TestServer_Silence_hidesTheServersEnd(t *testing.T) {
	begun := make(chan struct{}, 1)
	next := make(chan struct{}, 1)
	script := func() http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			begun <- struct{}{}
			<-next
			w.Header().Set("Connection", "close")
		})
	}
	for _, way := range silentWays {
		t.Run(way.name, func(t *testing.T) {
			srv := &faulttest.Server{Script: script(), InMemory: way.inMemory, HTTP2: way.http2}
			srv.Start(t)
			done := make(chan error)
			go func() { done <- errOf(proto(srv.Client(), srv.URL, 200*time.Millisecond)) }()
			<-begun
			srv.Silence()
			next <- struct{}{}
			require.ErrorIs(t, <-done, context.DeadlineExceeded)
		})
	}
}

// Silent: the request's connection is silent, and so are later calls of HTTP/2 on it.
func TestSilent(t *testing.T) {
	script := func() http.Handler { return faulttest.Sequence(faulttest.Silent, faulttest.OK("ok")) }
	onSilentWays(t, script, func(t *testing.T, srv *faulttest.Server, patience time.Duration) {
		require.ErrorIs(t, errOf(proto(srv.Client(), srv.URL, patience)), context.DeadlineExceeded)
		require.Equal(t, faulttest.Silent, srv.Requests()[0].Fault)
		_, err := proto(srv.Client(), srv.URL, patience)
		if srv.HTTP2 {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Len(t, srv.Requests(), 1)
			srv.Client().CloseIdleConnections()
			return
		}
		require.NoError(t, err)
		require.Equal(t, 2, srv.Requests()[1].Conn)
	})
}

// Close ends silent connections, also those that no client closes.
func TestServer_Silence_endsWithTheServer(t *testing.T) {
	script := func() http.Handler { return faulttest.Silent }
	onSilentWays(t, script, func(t *testing.T, srv *faulttest.Server, _ time.Duration) {
		done := make(chan error)
		go func() { done <- errOf(proto(srv.Client(), srv.URL, time.Hour)) }()
		for len(srv.Requests()) == 0 || srv.Requests()[0].Fault != faulttest.Silent {
			time.Sleep(time.Millisecond)
		}
		srv.Close()
		err := <-done
		require.Error(t, err)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}
