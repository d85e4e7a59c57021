package faulttest_test

import (
	"bytes"
	"cmp"
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
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

func TestLog_Requests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := faulttest.NewInMemory(t, faulttest.Reply{Body: "hi", Delay: time.Minute})
		time.Sleep(time.Hour)
		begin := time.Now()
		answered(t, srv.Client(), http.MethodPatch, srv.URL+"/a%2Fb/c?d=e", "hello", "Idempotency-Key", "k", "X-A", "1")
		q := srv.Requests()[0]
		assert.Equal(t, "1", q.Header.Get("X-A"))
		q.Header = nil
		assert.EqualExportedValues(t, faulttest.Request{
			Number: 1, Conn: 1, Method: "PATCH", Host: "fault.test", URI: "/a%2Fb/c?d=e", Path: "/a/b/c", Key: "k",
			Body: []byte("hello"), BodySize: 5, BodyRead: true, ContentLength: 5,
			Status: 200, ResponseBytes: 2, ReceivedAt: begin, EndedAt: begin.Add(time.Minute),
		}, q)

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
		bubble.Run(t, row.name, func(t *testing.T) {
			srv := faulttest.NewInMemory(t, nil)
			status(t, srv, http.MethodGet, "/", row.header...)
			q := srv.Requests()[0]
			assert.True(t, row.deadline.Equal(q.Deadline), q.Deadline)
			assert.Equal(t, row.left, q.TimeLeft)
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
	synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
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

// sent is a request for record.
type sent struct {
	after  time.Duration // since the previous request
	method string        // "": POST
	uri    string        // "": /charges
	key    string
	body   string
	until  time.Duration // X-Request-Deadline, since the first request; 0: none
	left   string        // X-Request-Timeout-Ms
	more   []string      // header
	reply  http.Handler  // nil: 503
}

// record lets l record requests, in a bubble.
func record(l *faulttest.Log, requests ...sent) {
	begin := time.Now()
	for _, s := range requests {
		time.Sleep(s.after)
		r := httptest.NewRequest(cmp.Or(s.method, http.MethodPost), cmp.Or(s.uri, "/charges"), strings.NewReader(s.body))
		if s.key != "" {
			r.Header.Set("Idempotency-Key", s.key)
		}
		if s.until != 0 {
			r.Header.Set("X-Request-Deadline", begin.Add(s.until).UTC().Format("2006-01-02T15:04:05.000Z"))
		}
		if s.left != "" {
			r.Header.Set("X-Request-Timeout-Ms", s.left)
		}
		for i := 0; i < len(s.more); i += 2 {
			r.Header.Add(s.more[i], s.more[i+1])
		}
		func() {
			defer func() { _ = recover() }() // a fault panics without a connection
			l.Record(cmp.Or[http.Handler](s.reply, faulttest.Status(503))).ServeHTTP(httptest.NewRecorder(), r)
		}()
	}
}

// Each assertion fails when it must, with its message, and passes otherwise.
func TestAssertions(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	type check = func(*faulttest.Log, faulttest.TB) bool
	attempts := func(n ...int) check {
		return func(l *faulttest.Log, tb faulttest.TB) bool { return l.AssertAttempts(tb, n...) }
	}
	keys := func(n int) check {
		return func(l *faulttest.Log, tb faulttest.TB) bool { return l.AssertKeys(tb, n) }
	}
	spacing := func(low, high time.Duration) check {
		return func(l *faulttest.Log, tb faulttest.TB) bool { return l.AssertSpacing(tb, low, high) }
	}
	bodies := func(l *faulttest.Log, tb faulttest.TB) bool { return l.AssertBodies(tb) }
	deadlines := func(by time.Duration) check {
		return func(l *faulttest.Log, tb faulttest.TB) bool {
			if by == 0 {
				return l.AssertDeadlines(tb, time.Time{})
			}
			return l.AssertDeadlines(tb, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(by))
		}
	}
	requests := func(n int) check {
		return func(l *faulttest.Log, tb faulttest.TB) bool { return l.AssertRequests(tb, n) }
	}
	byOrderID := func(q *faulttest.Request) string { return q.Header.Get("X-Order") }
	for _, row := range []struct {
		name       string
		groupCalls func(*faulttest.Request) string
		requests   []sent
		check      check
		fails      string // a part of the failure; "": none
	}{
		{"no requests wanted", nil, nil, requests(0), ""},
		{"requests", nil, []sent{{}, {}}, requests(2), ""},
		{"too few requests", nil, []sent{{}, {}}, requests(3), "requests\nwant: 3\ngot:  2\n"},
		{"too many requests", nil, []sent{{}, {}}, requests(1), "requests\nwant: 1\ngot:  2\n"},

		{"one call", nil, []sent{{key: "a"}, {key: "a"}, {key: "a"}}, attempts(3), ""},
		{"two interleaved calls", nil, []sent{{key: "a"}, {key: "b"}, {key: "a"}}, attempts(2, 1), ""},
		{"no calls", nil, nil, attempts(), ""},
		{"without keys, by method, URI and body", nil, []sent{{}, {method: "GET"}, {uri: "/x"}, {body: "x"}, {}}, attempts(2, 1, 1, 1), ""},
		{"without keys and unread", nil, []sent{{body: "x", reply: faulttest.ResetBeforeRead}, {body: "x", reply: faulttest.ResetBeforeRead}}, attempts(2), ""},
		{"without keys, unread and read", nil, []sent{{body: "x", reply: faulttest.ResetBeforeRead}, {body: "x"}, {body: "x", reply: faulttest.ResetBeforeRead}, {body: "x"}}, attempts(4), ""},
		{"without keys, unread and two bodies", nil, []sent{{body: "x", reply: faulttest.ResetBeforeRead}, {body: "x"}, {body: "y"}, {body: "y", reply: faulttest.ResetBeforeRead}, {body: "x"}}, attempts(3, 2), ""},
		{"without keys, unread and another URI", nil, []sent{{body: "x", reply: faulttest.ResetBeforeRead}, {body: "x", uri: "/x"}}, attempts(1, 1), ""},
		{"unread without a key and read with one", nil, []sent{{body: "x", reply: faulttest.ResetBeforeRead}, {key: "a", body: "x"}}, attempts(1, 1), ""},
		{"grouped by a header field", byOrderID, []sent{{key: "a", more: []string{"X-Order", "1"}}, {key: "b", more: []string{"X-Order", "1"}}}, attempts(2), ""},
		{"an attempt too few", nil, []sent{{key: "a"}, {key: "a"}}, attempts(3), "attempts of each call\nwant: 3\ngot:  2\n"},
		{"an attempt too many", nil, []sent{{key: "a"}, {key: "b"}, {key: "b"}}, attempts(1, 1), "want: 1 1\ngot:  1 2\n"},
		{"a call too many", nil, []sent{{key: "a"}, {key: "b"}}, attempts(1), "want: 1\ngot:  1 1\n"},
		{"no call, one wanted", nil, nil, attempts(1), "want: 1\ngot:  no calls\n\nno requests"},

		{"keys", nil, []sent{{key: "a"}, {key: "a"}, {key: "b", body: "x"}, {method: "GET"}}, keys(2), ""},
		{"keys of equal calls", nil, []sent{{key: "a"}, {key: "b"}}, keys(2), ""},
		{"no keys on idempotent methods", nil, []sent{{method: "PUT"}, {method: "GET"}}, keys(0), ""},
		{"a key of a PUT counts", nil, []sent{{method: "PUT", key: "a"}}, keys(1), ""},
		{"a new key for each attempt", nil, []sent{{key: "a"}, {key: "b"}}, keys(1), "idempotency keys, one for each call\nwant: 1\ngot:  2\n"},
		{"one key for two calls", nil, []sent{{key: "a"}, {key: "a"}}, keys(2), "want: 2\ngot:  1\n"},
		{"one key for two bodies", nil, []sent{{key: "a", body: "1"}, {key: "a", body: "2"}}, keys(1), "got:  1\n      request 2 has the key of request 1, but is another request\n"},
		{"one key for two paths", nil, []sent{{key: "a"}, {key: "a", uri: "/b"}}, keys(1), "request 2 has the key of request 1, but is another request"},
		{"one key for two methods", nil, []sent{{key: "a"}, {key: "a", method: "PATCH"}}, keys(1), "request 2 has the key of request 1, but is another request"},
		{"one key on a redirect, twice", nil, []sent{
			{key: "a", reply: faulttest.Redirect(307, "/b")}, {key: "a", uri: "/b"}, {key: "a", reply: faulttest.Redirect(307, "/b")}, {key: "a", uri: "/b"},
		}, keys(1), ""},
		{"a body that was not read counts as equal", nil, []sent{{key: "a", body: "1", reply: faulttest.ResetBeforeRead}, {key: "a", body: "1"}}, keys(1), ""},
		{"no key on a POST", nil, []sent{{key: "a"}, {}}, keys(1), "request 2 has no key"},
		{"no key on a PATCH", nil, []sent{{method: "PATCH"}}, keys(0), "got:  0\n      request 1 has no key"},
		{"two keys on a POST", nil, []sent{{key: "a", more: []string{"Idempotency-Key", "b"}}}, keys(1), "request 1 has 2 keys"},

		{"bodies", nil, []sent{{key: "a", body: "1"}, {key: "b", body: "2"}, {key: "a", body: "1"}}, bodies, ""},
		{"bodies, one unread", nil, []sent{{key: "a", body: "1", reply: faulttest.ResetBeforeRead}, {key: "a", body: "1"}, {key: "a", body: "1"}}, bodies, ""},
		{"another body", nil, []sent{{key: "a", body: "1"}, {key: "a", body: ""}}, bodies, "faulttest: body of request 2, an attempt of the call of request 1\nwant: 1 bytes, \"1\", sha256 6b86b273ff34fce1\ngot:  0 bytes, \"\", sha256 e3b0c44298fc1c14\n"},
		{"another long body", nil, []sent{{key: "a", body: strings.Repeat("x", 20000)}, {key: "a", body: strings.Repeat("x", 19999) + "y"}}, bodies, "20000 bytes, \"" + strings.Repeat("x", 80) + "…\", sha256"},
		{"no bodies at all", nil, nil, bodies, "want: at least one request\ngot:  none\n"},

		{"spacing", nil, []sent{{key: "a"}, {key: "b"}, {after: s, key: "a"}, {after: s, key: "a"}}, spacing(s, s), ""},
		{"spacing without an end", nil, []sent{{key: "a"}, {after: time.Hour, key: "a"}}, spacing(s, 0), ""},
		{"spacing counts from the end of an attempt", nil, []sent{{key: "a", reply: faulttest.Reply{Delay: time.Hour}}, {after: s, key: "a"}}, spacing(s, s), ""},
		{"too early", nil, []sent{{key: "a"}, {key: "b"}, {after: s - 1, key: "a"}}, spacing(s, 0), "waits between attempts\nwant: at least 1s\ngot:  999.999999ms between requests 1 and 3\n"},
		{"too late", nil, []sent{{key: "a"}, {after: s + 1, key: "a"}}, spacing(s, s), "want: at least 1s, at most 1s\ngot:  1.000000001s between requests 1 and 2\n"},
		{"no second attempt", nil, []sent{{key: "a"}, {key: "b"}}, spacing(0, 0), "got:  no second attempt"},

		{"deadlines", nil, []sent{{key: "a", until: 9 * s, left: "9000"}, {after: s, key: "a", until: 9 * s, left: "8000"}}, deadlines(9 * s), ""},
		{"deadlines of attempts", nil, []sent{{key: "a", until: 2 * s, left: "2000"}, {after: 5 * s, key: "a", until: 7 * s, left: "2000"}, {after: s, key: "a", until: 7 * s, left: "1000"}}, deadlines(7 * s), ""},
		{"only time left, within the tolerance", nil, []sent{{key: "a", left: "9000"}, {after: s + 100*ms, key: "a", left: "8000"}}, deadlines(9 * s), ""},
		{"only deadlines, within the tolerance", nil, []sent{{after: 100 * ms, key: "a", until: 9 * s}, {key: "a", until: 9*s + 100*ms}}, deadlines(0), ""},
		{"a deadline that is too late", nil, []sent{{key: "a", until: 9*s + ms, left: "9001"}}, deadlines(9 * s), "deadlines\nwant: one on each request, with no more time left than before, none after 2000-01-01T00:00:09Z\ngot:  1ms too late on request 1\n"},
		{"time left that is too long, without a deadline", nil, []sent{{key: "a", left: "9101"}}, deadlines(9 * s), "101ms too late on request 1"},
		{"more time than before", nil, []sent{{key: "a", left: "2000"}, {key: "a", left: "2001"}}, deadlines(0), "want: one on each request, with no more time left than before\ngot:  2.001s left on request 2, after 2s on request 1\n"},
		{"more time than before, only deadlines", nil, []sent{{key: "a", until: 9 * s}, {key: "a", until: 9*s + 101*ms}}, deadlines(0), "9.101s left on request 2, after 9s on request 1"},
		{"a deadline missing", nil, []sent{{key: "a", left: "1"}, {key: "a"}}, deadlines(0), "got:  no deadline on request 2\n"},
		{"no deadlines at all", nil, nil, deadlines(0), "got:  no requests\n"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := &faulttest.Log{GroupCalls: row.groupCalls}
			record(l, row.requests...)
			var fake fakeTB
			passed := row.check(l, &fake)
			failures := fake.failures()
			if row.fails == "" {
				assert.True(t, passed)
				assert.Empty(t, failures)
				return
			}
			assert.False(t, passed)
			assert.Contains(t, failures, row.fails)
			assert.True(t, strings.HasPrefix(failures, "faulttest: "))
			assert.True(t, strings.HasSuffix(failures, "\n\n"+l.Transcript()), "the transcript comes last")
		})
	}
}

func TestLog_Transcript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l faulttest.Log
		assert.Equal(t, "no requests", l.Transcript())
		record(&l,
			sent{method: "GET", uri: "/" + strings.Repeat("long/", 20)},
			sent{after: 1234567 * time.Microsecond, key: "0195e5c1-7f3c-7cc1-8b2f-3d1f0a4b9e77", left: "12345", reply: faulttest.Reply{Delay: 1500 * time.Microsecond}},
			sent{after: 40 * time.Minute, key: strings.Repeat("kéy", 20), until: time.Hour, reply: faulttest.ResetAfterRead},
			sent{after: 99 * time.Nanosecond, method: "PUT", reply: faulttest.Truncated},
			sent{reply: faulttest.Script{}},
		)
		assert.Equal(t, strings.TrimPrefix(`
#  at        conn      request                                                           key                                       time left  outcome                        took
1  0s        1         GET /long/long/long/long/long/long…ong/long/long/long/long/long/                                                       503                            0s
2  1.23s     1 reused  POST /charges                                                     0195e5c1-7f3c-7cc1-8b2f-3d1f0a4b9e77      12.35s     200                            1.5ms
3  40m1.24s  1 reused  POST /charges                                                     kéykéykéykéykéykéyké…ykéykéykéykéykéykéy  19m58.76s  reset after read               0s
4  40m1.24s  1 reused  PUT /charges                                                                                                           200, truncated after 32 bytes  0s
5  40m1.24s  1 reused  POST /charges                                                                                                          200 no rule                    0s
`, "\n"), l.Transcript())
	})
}
