package faulttest_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

func TestLog_Requests(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		srv := faulttest.NewInMemory(t, faulttest.Reply{Body: "hi", Delay: time.Minute})
		time.Sleep(time.Hour)
		begin := time.Now()
		answered(t, srv.Client(), http.MethodPatch, srv.URL+"/a%2Fb/c?d=e", "hello", "Idempotency-Key", "k", "X-A", "1")
		q := srv.Requests()[0]
		assert.Equal(t, 1, q.Number)
		assert.Equal(t, "PATCH", q.Method)
		assert.Equal(t, "fault.test", q.Host)
		assert.Equal(t, "/a%2Fb/c?d=e", q.URI)
		assert.Equal(t, "/a/b/c", q.Path)
		assert.Equal(t, "1", q.Header.Get("X-A"))
		assert.Equal(t, "hello", string(q.Body))
		assert.EqualValues(t, 5, q.BodySize)
		assert.True(t, q.BodyRead)
		assert.EqualValues(t, 5, q.ContentLength)
		assert.Equal(t, "k", q.Key)
		assert.Equal(t, begin, q.ReceivedAt)
		assert.Equal(t, begin.Add(time.Minute), q.EndedAt)
		assert.Equal(t, 200, q.Status)
		assert.EqualValues(t, 2, q.ResponseBytes)
		assert.Zero(t, q.Deadline)
		assert.Equal(t, 1, q.Conn)
		assert.False(t, q.Reused)

		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL, io.MultiReader(strings.NewReader("hello")))
		require.NoError(t, err)
		resp, err := srv.Client().Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		status(t, srv, http.MethodGet, "/")
		assert.EqualValues(t, -1, srv.Requests()[1].ContentLength, "chunked")
		assert.EqualValues(t, 5, srv.Requests()[1].BodySize)
		assert.Zero(t, srv.Requests()[2].ContentLength)
	})
}

func TestRequest_deadline(t *testing.T) {
	t.Parallel()
	at := time.Date(2000, 1, 1, 0, 0, 30, 250e6, time.UTC)
	for _, row := range []struct {
		name     string
		header   []string
		deadline time.Time
		left     time.Duration
	}{
		{"none", nil, time.Time{}, 0},
		{"both", []string{"X-Request-Deadline", "2000-01-01T00:00:30.250Z", "X-Request-Timeout-Ms", "30000"}, at, 30 * time.Second},
		{"deadline", []string{"X-Request-Deadline", "2000-01-01T00:00:30.250Z"}, at, 30250 * time.Millisecond},
		{"time left", []string{"X-Request-Timeout-Ms", "30250"}, at, 30250 * time.Millisecond},
		{"no time left", []string{"X-Request-Timeout-Ms", "0"}, at.Add(-30250 * time.Millisecond), 0},
		{"malformed", []string{"X-Request-Deadline", "soon", "X-Request-Timeout-Ms", "-1"}, time.Time{}, 0},
		{"absurd", []string{"X-Request-Timeout-Ms", "9223372036854775807"}, time.Time{}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				srv := faulttest.NewInMemory(t, nil)
				status(t, srv, http.MethodGet, "/", row.header...)
				q := srv.Requests()[0]
				assert.True(t, row.deadline.Equal(q.Deadline), q.Deadline)
				assert.Equal(t, row.left, q.TimeLeft)
			})
		})
	}
	var log faulttest.Log
	log.DeadlineHeader = "X-Until"
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Until", "2000-01-01T00:00:30.250Z")
	log.Record(nil).ServeHTTP(httptest.NewRecorder(), r)
	assert.Equal(t, at, log.Requests()[0].Deadline)
}

// Memory is bounded, and assertions report requests that were not kept.
func TestLog_bounds(t *testing.T) {
	t.Parallel()
	serve := func(l *faulttest.Log, n int, body string) {
		h := l.Record(nil)
		for i := range n {
			r := httptest.NewRequest(http.MethodPost, fmt.Sprint("/", i), strings.NewReader(body))
			r.RemoteAddr = fmt.Sprint("10.0.0.1:", i)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	t.Run("requests", func(t *testing.T) {
		t.Parallel()
		l := &faulttest.Log{MaxRequests: 10, MaxBody: 3}
		serve(l, 10, "hello")
		assert.True(t, l.AssertBodies(t))
		serve(l, 95, "hello")
		list := l.Requests()
		require.Len(t, list, 10)
		assert.Equal(t, 105, l.Total())
		assert.Equal(t, 96, list[0].Number)
		assert.Equal(t, "hel", string(list[0].Body))
		assert.EqualValues(t, 5, list[0].BodySize)
		kept, _ := faulttest.LogMemory(l)
		assert.Less(t, kept, 20)
		assert.Contains(t, l.Transcript(), "\n(95 earlier requests are not shown)\n")
		assert.True(t, l.AssertRequests(t, 105))
		var fake fakeTB
		for name, assertion := range map[string]func() bool{
			"attempts":  func() bool { return l.AssertAttempts(&fake, 105) },
			"keys":      func() bool { return l.AssertKeys(&fake, 0) },
			"bodies":    func() bool { return l.AssertBodies(&fake) },
			"spacing":   func() bool { return l.AssertSpacing(&fake, 0, 0) },
			"deadlines": func() bool { return l.AssertDeadlines(&fake, time.Time{}) },
		} {
			assert.False(t, assertion(), name)
			assert.Contains(t, fake.failures(), "records of all requests (raise Log.MaxRequests)\nwant: 105\ngot:  10\n", name)
		}
	})
	t.Run("defaults", func(t *testing.T) {
		t.Parallel()
		l := new(faulttest.Log)
		serve(l, 20000, strings.Repeat("x", 10))
		assert.Len(t, l.Requests(), 4096)
		kept, conns := faulttest.LogMemory(l)
		assert.Less(t, kept, 2*4096)
		assert.LessOrEqual(t, conns, 1<<14)
		serve(l, 1, strings.Repeat("x", 20000))
		assert.Len(t, l.Requests()[4095].Body, 16<<10)
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		l := &faulttest.Log{MaxRequests: -1, MaxBody: -1}
		serve(l, 9000, "")
		serve(l, 1, strings.Repeat("x", 20000))
		assert.Len(t, l.Requests(), 9001)
		assert.Len(t, l.Requests()[9000].Body, 20000)
	})
}

// A port that is used again is another connection.
func TestLog_connections(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, unit time.Duration, start func(http.Handler) *faulttest.Server) {
		srv := start(nil)
		for range 2 {
			status(t, srv, http.MethodGet, "/")
		}
		srv.Client().CloseIdleConnections()
		other := srv.Transport().Clone()
		defer other.CloseIdleConnections()
		answered(t, &http.Client{Transport: other}, http.MethodGet, srv.URL, "")
		var got []string
		for _, q := range srv.Requests() {
			got = append(got, fmt.Sprint(q.Conn, q.Reused))
		}
		assert.Equal(t, []string{"1 false", "1 true", "2 false"}, got)

		other.CloseIdleConnections()
		await(t, unit, func() bool {
			_, conns := faulttest.LogMemory(&srv.Log)
			return conns == 0 // otherwise the next connection from that port would count as reused
		})
	})
}

// The Log does not read the body of a full-duplex handler.
func TestLog_fullDuplex(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, unit time.Duration, start func(http.Handler) *faulttest.Server) {
		srv := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			assert.NoError(t, rc.EnableFullDuplex())
			_, _ = r.Body.Read(make([]byte, 2))
			assert.NoError(t, rc.Flush())
			_, _ = io.Copy(w, r.Body)
		}))
		srv.Client().Timeout = 500 * unit
		rest, sender := io.Pipe()
		go func() { _, _ = io.WriteString(sender, "he") }()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, rest)
		require.NoError(t, err)
		resp, err := srv.Client().Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		_, err = io.WriteString(sender, "llo") // only now
		require.NoError(t, err)
		require.NoError(t, sender.Close())
		echo, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "llo", string(echo))
		assert.Equal(t, "hello", string(srv.Requests()[0].Body))
	})
}

func TestLog_recordsOtherHandlers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		h       http.HandlerFunc
		body    string // recorded
		outcome string
		sent    int64
	}{
		{"nothing", func(http.ResponseWriter, *http.Request) {}, "hello", "200", 0},
		{"status", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			w.WriteHeader(http.StatusGone)
		}, "hello", "404", 0},
		{"body", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hi") }, "hello", "200", 2},
		{"early hints", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusCreated)
		}, "hello", "201", 0},
		{"flush", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); fmt.Fprint(w, "hi") }, "hello", "200", 2},
		{"reads", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, "hello", "200", 5},
		{"reads a part", func(_ http.ResponseWriter, r *http.Request) { _, _ = r.Body.Read(make([]byte, 2)) }, "hello", "200", 0},
		{"closes", func(_ http.ResponseWriter, r *http.Request) { _ = r.Body.Close() }, "", "200", 0},
		{"aborts", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "", "aborted", 0},
		{"hijacks", func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
				c.Close()
			}
		}, "", "hijacked", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			onBothServers(t, func(t *testing.T, unit time.Duration, start func(http.Handler) *faulttest.Server) {
				srv := start(row.h)
				srv.Client().Timeout = 100 * unit
				_, _, _ = send(t, srv.Client(), http.MethodPost, srv.URL, "hello")
				await(t, unit, func() bool { return !srv.Requests()[0].EndedAt.IsZero() })
				q := srv.Requests()[0]
				assert.Equal(t, row.body, string(q.Body))
				assert.Equal(t, row.outcome, q.Outcome())
				assert.Equal(t, row.sent, q.ResponseBytes)
			})
		})
	}
}

// A record can be read while its handler runs.
func TestLog_requestInProgress(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		srv := faulttest.NewInMemory(t, faulttest.Sequence(faulttest.Reply{Delay: time.Hour}, faulttest.Hang))
		for range 2 {
			go func() { _, _, _ = send(t, srv.Client(), http.MethodGet, srv.URL, "") }()
			synctest.Wait()
		}
		assert.Equal(t, []string{"in progress", "hang, in progress"}, outcomes(&srv.Log))
		assert.Equal(t, ""+
			"#  at  conn  request  outcome\n"+
			"1  0s  1     GET /    in progress\n"+
			"2  0s  2     GET /    hang, in progress\n", srv.Transcript())
		srv.Close()
		assert.Equal(t, []string{"server closed", "hang, server closed"}, outcomes(&srv.Log))
	})
}

// Skew changes the Date of all handlers.
func TestLog_Skew(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		srv := &faulttest.Server{InMemory: true, Script: faulttest.Script{
			{Route: "/own", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})},
			{Route: "/written", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") })},
			{Handler: faulttest.Unavailable(time.Minute, faulttest.HTTPDate)},
		}}
		srv.Skew = time.Hour
		srv.Start(t)
		for path, date := range map[string]string{"/own": "01:00:00", "/written": "01:00:00", "/": "01:00:00"} {
			resp, _ := answered(t, srv.Client(), http.MethodGet, srv.URL+path, "")
			assert.Equal(t, "Sat, 01 Jan 2000 "+date+" GMT", resp.Header.Get("Date"), path)
			if path == "/" {
				assert.Equal(t, "Sat, 01 Jan 2000 01:01:00 GMT", resp.Header.Get("Retry-After"))
			}
		}
	})
}

// The handler gets the request unchanged.
func TestLog_doesNotChangeRequests(t *testing.T) {
	t.Parallel()
	var log faulttest.Log
	var got []byte
	none := false
	h := log.Record(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Body == http.NoBody {
			none = true
		}
		got, _ = io.ReadAll(r.Body)
	}))
	sent := bytes.Repeat([]byte("0123456789"), 100000)
	srv := httptest.NewServer(h)
	defer srv.Close()
	_, _, err := send(t, srv.Client(), http.MethodPut, srv.URL, string(sent))
	require.NoError(t, err)
	assert.Equal(t, sent, got)
	assert.EqualValues(t, len(sent), log.Requests()[0].BodySize)
	answered(t, srv.Client(), http.MethodGet, srv.URL, "")
	assert.True(t, none)
	assert.True(t, log.Requests()[1].BodyRead)
}
