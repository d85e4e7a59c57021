package idempotency

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testLimit is small, so that the large bodies below go through a file.
const testLimit = 16 << 10

// captured does what Handler does with a response, without the record.
func captured(next http.HandlerFunc, limit int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := newCapture(w, r, limit)
		defer c.close()
		next(c, r)
		c.finish()
		if err := c.sendResponse(w); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// handlerRow is a handler with its expectations.
type handlerRow struct {
	name    string
	method  string // "": POST
	headers string // lines of the request's header
	http1   bool   // nothing to compare over HTTP/2
	flushes bool   // without a capture it is sent before its end: net/http sniffs less, and knows no length
	handler http.HandlerFunc
}

func write(w io.Writer, parts ...string) {
	for _, p := range parts {
		_, _ = w.Write([]byte(p))
	}
}

// onlyReader hides WriteTo, so that io.Copy asks for ReadFrom.
type onlyReader struct{ io.Reader }

// copyInto copies text with w's ReadFrom, if it has one.
func copyInto(w io.Writer, text string) {
	if n, err := io.Copy(w, onlyReader{strings.NewReader(text)}); n != int64(len(text)) || err != nil {
		panic(fmt.Sprint(n, err))
	}
}

func handlerRows() []handlerRow {
	long := strings.Repeat("0123456789abcdef", 1<<8)    // 4 KiB
	longer := strings.Repeat("0123456789abcdef", 3<<11) // 96 KiB: beyond testLimit
	set := func(w http.ResponseWriter, pairs ...string) http.ResponseWriter {
		for n := 0; n < len(pairs); n += 2 {
			w.Header().Set(pairs[n], pairs[n+1])
		}
		return w
	}
	flush := func(w http.ResponseWriter) { w.(http.Flusher).Flush() }
	type W = http.ResponseWriter
	type R = *http.Request
	return []handlerRow{
		{name: "nothing at all", handler: func(W, R) {}},
		{name: "implicit 200", handler: func(w W, _ R) { write(w, "hello") }},
		{name: "201 with JSON", handler: func(w W, _ R) {
			set(w, "Content-Type", "application/json", "Location", "/charges/1").WriteHeader(http.StatusCreated)
			write(w, `{"id":1}`)
		}},
		{name: "201 with nothing", handler: func(w W, _ R) { w.WriteHeader(http.StatusCreated) }},
		{name: "204", handler: func(w W, _ R) { set(w, "X-A", "b").WriteHeader(http.StatusNoContent) }},
		{name: "204 and a body", handler: func(w W, _ R) {
			w.WriteHeader(http.StatusNoContent)
			_, err := w.Write([]byte("x"))
			if !errors.Is(err, http.ErrBodyNotAllowed) {
				panic(err)
			}
		}},
		{name: "204 and an empty write", http1: true, handler: func(w W, _ R) {
			w.WriteHeader(http.StatusNoContent)
			if _, err := w.Write(nil); err != nil {
				panic(err)
			}
		}},
		{name: "304 with a validator and a length", handler: func(w W, _ R) {
			set(w, "ETag", `"1"`, "Content-Length", "5", "Content-Type", "text/css").WriteHeader(http.StatusNotModified)
		}},
		{name: "302", handler: func(w W, r R) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }},
		{name: "http.Error", handler: func(w W, _ R) { http.Error(w, "no such charge", http.StatusNotFound) }},
		{name: "an unregistered status", handler: func(w W, _ R) { w.WriteHeader(799); write(w, "x") }},
		{name: "two statuses", handler: func(w W, _ R) {
			w.WriteHeader(http.StatusAccepted)
			w.WriteHeader(http.StatusInternalServerError)
			write(w, "x")
		}},
		{name: "a status after the body", handler: func(w W, _ R) { write(w, "x"); w.WriteHeader(http.StatusInternalServerError) }},
		{name: "an empty write", handler: func(w W, _ R) { write(w, ""); w.WriteHeader(http.StatusInternalServerError) }},
		{name: "HTML in two writes", handler: func(w W, _ R) { write(w, "<!DOC", "TYPE html><p>") }},
		{name: "2048 bytes", handler: func(w W, _ R) { write(w, long[:2048]) }},
		{name: "2048 bytes and one", handler: func(w W, _ R) { write(w, long[:2048], "x") }},
		{name: "2049 bytes at once", handler: func(w W, _ R) { write(w, long[:2049]) }},
		{name: "4 KiB at once", handler: func(w W, _ R) { write(w, long) }},
		{name: "4 KiB as a string", handler: func(w W, _ R) { _, _ = io.WriteString(w, long) }},
		{name: "a few bytes, and 4 KiB", handler: func(w W, _ R) { write(w, "abc", long, "def", long, long[:2047]) }},
		{name: "96 KiB in lines", handler: func(w W, _ R) { write(w, strings.SplitAfter(longer, "f")...) }},
		{name: "96 KiB with a length", handler: func(w W, _ R) {
			write(set(w, "Content-Length", strconv.Itoa(len(longer))), longer)
		}},
		{name: "flush first", flushes: true, handler: func(w W, _ R) { flush(w); write(w, "<html>") }},
		{name: "flush alone", flushes: true, handler: func(w W, _ R) { flush(w) }},
		{name: "flush in the middle", flushes: true, handler: func(w W, _ R) { write(w, "<htm"); flush(w); write(w, "l>") }},
		{name: "flush last", flushes: true, handler: func(w W, _ R) { write(w, "<html>"); flush(w) }},
		{name: "flush by the controller", flushes: true, handler: func(w W, _ R) {
			write(w, "a")
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(err)
			}
			write(w, "b")
		}},
		{name: "flush and a length", handler: func(w W, _ R) {
			write(set(w, "Content-Length", "4"), "ab")
			flush(w)
			write(w, "cd")
		}},
		{name: "flush and 204", flushes: true, handler: func(w W, _ R) { w.WriteHeader(http.StatusNoContent); flush(w) }},
		{name: "trailers announced", handler: func(w W, _ R) {
			write(set(w, "Trailer", "X-Sum, X-Other, X-Never"), "body")
			set(w, "X-Sum", "1", "X-Other", "2", "X-Late", "3")
		}},
		{name: "a trailer that is set twice", handler: func(w W, _ R) {
			write(set(w, "Trailer", "X-Sum", "X-Sum", "early"), "body")
			set(w, "X-Sum", "late")
		}},
		{name: "a trailer that is taken back", handler: func(w W, _ R) {
			write(set(w, "Trailer", "X-Sum", "X-Sum", "early"), "body")
			w.Header().Del("X-Sum")
		}},
		{name: "a trailer behind an empty write", handler: func(w W, _ R) {
			write(set(w, "Trailer", "X-Sum"), "")
			set(w, "X-Sum", "1")
		}},
		{name: "trailers by prefix, late", flushes: true, handler: func(w W, _ R) {
			w.Header().Set("X-A", "b")
			write(w, "body")
			flush(w)
			set(w, http.TrailerPrefix+"X-Sum", "1")
		}},
		{name: "trailers by prefix, early", handler: func(w W, _ R) {
			write(set(w, http.TrailerPrefix+"X-Sum", "1", http.TrailerPrefix+"X-Gone", "1"), "body")
			delete(w.Header(), http.TrailerPrefix+"X-Gone")
		}},
		{name: "a length that is right", handler: func(w W, _ R) { write(set(w, "Content-Length", "5"), "hello") }},
		{name: "a length that is too long", handler: func(w W, _ R) { write(set(w, "Content-Length", "7"), "hello") }},
		{name: "a length that is too short", http1: true, handler: func(w W, _ R) {
			write(set(w, "Content-Length", "3"), "abc")
			if _, err := w.Write([]byte("d")); !errors.Is(err, http.ErrContentLength) {
				panic(err)
			}
			if _, err := io.WriteString(w, "d"); !errors.Is(err, http.ErrContentLength) {
				panic(err)
			}
		}},
		{name: "a length of 0 and a body", http1: true, handler: func(w W, _ R) { write(set(w, "Content-Length", "0"), "abc") }},
		{name: "a length that is none", http1: true, handler: func(w W, _ R) { write(set(w, "Content-Length", "five"), "hello") }},
		{name: "no Content-Type", handler: func(w W, _ R) { w.Header()["Content-Type"] = nil; write(w, "<html>") }},
		{name: "no Content-Length", handler: func(w W, _ R) { w.Header()["Content-Length"] = nil; write(w, "<html>") }},
		{name: "no Date", handler: func(w W, _ R) { w.Header()["Date"] = nil; write(w, "x") }},
		{name: "its own Date", handler: func(w W, _ R) { write(set(w, "Date", "yesterday"), "x") }},
		{name: "a name in lower case", http1: true, handler: func(w W, _ R) { w.Header()["x-lower"] = []string{"a", "b"}; write(w, "x") }},
		{name: "Connection: close", handler: func(w W, _ R) { write(set(w, "Connection", "close"), "x") }},
		{name: "Transfer-Encoding: identity", http1: true, handler: func(w W, _ R) { write(set(w, "Transfer-Encoding", "identity"), "<html>") }},
		{name: "Transfer-Encoding: chunked", http1: true, handler: func(w W, _ R) { write(set(w, "Transfer-Encoding", "chunked"), "<html>") }},
		{name: "early hints", handler: func(w W, _ R) {
			set(w, "Link", "</style.css>").WriteHeader(http.StatusEarlyHints)
			set(w, "X-A", "b").WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			w.WriteHeader(http.StatusCreated)
			write(w, "x")
		}},
		{name: "processing, and nothing else", handler: func(w W, _ R) { w.WriteHeader(http.StatusProcessing) }},
		{name: "a header changed after the status", handler: func(w W, _ R) {
			h := set(w, "X-A", "before", "X-Gone", "yes").Header()
			h["X-Values"] = []string{"1", "2"}
			w.WriteHeader(http.StatusCreated)
			h.Set("X-A", "after")
			h.Set("X-New", "after")
			h.Add("X-Values", "3")
			h["X-Values"][0] = "4"
			h.Del("X-Gone")
			write(w, "x")
		}},
		{name: "a header changed after the body", handler: func(w W, _ R) {
			write(w, "x")
			set(w, "X-New", "after")
		}},
		{name: "what middleware has set", handler: func(w W, _ R) {
			w.Header().Del("X-Outer-Gone")
			w.Header().Add("Vary", "Accept")
			write(w, w.Header().Get("X-Outer"))
		}},
		{name: "ReadFrom, short", handler: func(w W, _ R) { copyInto(w, "<html>") }},
		{name: "ReadFrom, 511 bytes", handler: func(w W, _ R) { copyInto(w, long[:511]) }},
		{name: "ReadFrom, 512 bytes", flushes: true, handler: func(w W, _ R) { copyInto(w, long[:512]) }},
		{name: "ReadFrom, 4 KiB", handler: func(w W, _ R) { copyInto(w, long) }},
		{name: "ReadFrom, 96 KiB with a length", handler: func(w W, _ R) {
			copyInto(set(w, "Content-Length", strconv.Itoa(len(longer))), longer)
		}},
		{name: "ReadFrom behind a large write", handler: func(w W, _ R) {
			write(w, long, "abc")
			copyInto(w, "def")
			write(w, "ghi")
		}},
		{name: "http.ServeContent", handler: func(w W, r R) {
			http.ServeContent(w, r, "a.css", time.Time{}, strings.NewReader(long))
		}},
		{name: "a range of http.ServeContent", method: http.MethodGet, headers: "Range: bytes=10-19\r\n", handler: func(w W, r R) {
			http.ServeContent(w, r, "a.css", time.Time{}, strings.NewReader(long))
		}},
		{name: "gzip", handler: func(w W, _ R) { write(set(w, "Content-Encoding", "gzip"), "\x1f\x8b\x08\x00not really") }},
		{name: "HEAD", method: http.MethodHead, handler: func(w W, _ R) { write(w, "hello") }},
		{name: "HEAD, and nothing", method: http.MethodHead, handler: func(W, R) {}},
		{name: "HEAD, long", method: http.MethodHead, handler: func(w W, _ R) { write(w, long, long) }},
		{name: "HEAD with a length", method: http.MethodHead, handler: func(w W, _ R) { set(w, "Content-Length", "5") }},
		{name: "HEAD with a flush", flushes: true, method: http.MethodHead, handler: func(w W, _ R) { write(w, "hello"); flush(w) }},
		{name: "HTTP/1.1 with Connection: close", flushes: true, http1: true, headers: "Connection: close\r\n", handler: func(w W, _ R) { write(w, "hello"); flush(w) }},
	}
}

// outer is middleware that sets header fields of its own.
func outer(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ping" {
			return
		}
		w.Header().Set("X-Outer", "1")
		w.Header().Set("X-Outer-Gone", "1")
		w.Header().Set("Vary", "Origin")
		next(w, r)
	}
}

func newServer(t *testing.T, handler http.HandlerFunc, http2 bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if s.EnableHTTP2 = http2; http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// raw sends two requests, so that the bytes show whether the connection was kept. It returns all
// bytes of the responses, with equal dates.
func raw(t *testing.T, handler http.HandlerFunc, row *handlerRow, proto string) string {
	t.Helper()
	conn, err := net.Dial("tcp", newServer(t, outer(handler), false).Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	method := row.method
	if method == "" {
		method = http.MethodPost
	}
	_, _ = fmt.Fprintf(conn, "%s / %s\r\nHost: x\r\n%s\r\nGET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method, proto, row.headers)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	return regexp.MustCompile(`Date: [^y\r]*`).ReplaceAllString(string(answer), "Date: now")
}

// TestCapture_HTTP1: a client sees the same as without a capture, and so does its next request.
func TestCapture_HTTP1(t *testing.T) {
	rows := handlerRows()
	for n := range rows {
		row := &rows[n]
		for _, proto := range []string{"HTTP/1.1", "HTTP/1.0"} {
			t.Run(row.name+", "+proto, func(t *testing.T) {
				wantRaw, gotRaw := raw(t, row.handler, row, proto), raw(t, captured(row.handler, testLimit), row, proto)
				if wantRaw == gotRaw {
					return // also if no client understands it, such as a Content-Length of five
				}
				want, got := parsed(t, wantRaw, row), parsed(t, gotRaw, row)
				if row.name == "a length that is too short" || row.name == "a length of 0 and a body" {
					// net/http also closes the connection: the handler's mistake, though
					// the response is whole.
					got.next = want.next
				}
				require.Equal(t, want, got)
			})
		}
	}
}

// parsed are the responses of raw, without the chunks.
func parsed(t *testing.T, s string, row *handlerRow) (p struct {
	observation

	next string // all behind the first response
}) {
	t.Helper()
	r := bufio.NewReader(strings.NewReader(s))
	for p.Code < 200 {
		resp, err := http.ReadResponse(r, &http.Request{Method: row.method})
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		p.observation = observation{resp.StatusCode, resp.Header, resp.ContentLength, string(body), resp.Trailer, err}
	}
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	p.next = string(rest)
	p.forget(row)
	return p
}

// TestCapture_HTTP2: a client sees the same as without a capture.
func TestCapture_HTTP2(t *testing.T) {
	rows := handlerRows()
	for n := range rows {
		row := &rows[n]
		if row.http1 {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			want, got := observe(t, row.handler, row, true), observe(t, captured(row.handler, testLimit), row, true)
			for _, seen := range []*observation{&want, &got} {
				seen.forget(row)
				if date := seen.Header["Date"]; len(date) > 0 && date[0] != "yesterday" {
					seen.Header.Set("Date", "now")
				}
			}
			require.Equal(t, want, got)
		})
	}
}

// TestCapture_statuses: informational responses are sent at once, and do not end the response.
func TestCapture_statuses(t *testing.T) {
	for code, atOnce := range map[int]bool{100: true, 101: false, 102: true, 199: true, 200: false, 999: false} {
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		c := newCapture(w, httptest.NewRequest(http.MethodPost, "/", nil), testLimit)
		c.WriteHeader(code)
		if atOnce {
			require.Equal(t, []int{code}, w.codes)
			require.Zero(t, c.code)
		} else {
			require.Empty(t, w.codes)
			require.Equal(t, code, c.code)
		}
		c.close()
	}
}

// deadlineRecorder also records statuses and deadlines.
type deadlineRecorder struct {
	*httptest.ResponseRecorder

	codes       []int
	read, write time.Time
	hijacked    bool
}

func (w *deadlineRecorder) WriteHeader(code int) {
	w.codes = append(w.codes, code)
	if code >= 200 {
		w.ResponseRecorder.WriteHeader(code)
	}
}
func (w *deadlineRecorder) SetReadDeadline(t time.Time) error  { w.read = t; return nil }
func (w *deadlineRecorder) SetWriteDeadline(t time.Time) error { w.write = t; return nil }
func (w *deadlineRecorder) EnableFullDuplex() error            { panic("not to be asked") }
func (w *deadlineRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.hijacked = true
	return nil, nil, nil
}

// TestCapture_controller: a handler cannot bypass the capture.
func TestCapture_controller(t *testing.T) {
	w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	c := newCapture(w, httptest.NewRequest(http.MethodPost, "/", nil), testLimit)
	defer c.close()
	rc := http.NewResponseController(c)
	at := time.Unix(1, 0)
	require.NoError(t, rc.SetReadDeadline(at))
	require.NoError(t, rc.SetWriteDeadline(at.Add(1)))
	require.NoError(t, rc.EnableFullDuplex())
	require.Equal(t, at, w.read)
	require.Equal(t, at.Add(1), w.write)
	_, _, err := rc.Hijack()
	require.ErrorIs(t, err, http.ErrNotSupported)
	require.False(t, w.hijacked)
	require.NotImplements(t, (*http.Hijacker)(nil), c)
	require.NotImplements(t, (*interface{ Unwrap() http.ResponseWriter })(nil), c)

	c.finish()
	require.ErrorIs(t, rc.SetReadDeadline(at.Add(2)), errHandlerOver)
	require.ErrorIs(t, rc.SetWriteDeadline(at.Add(2)), errHandlerOver)
	require.ErrorIs(t, rc.Flush(), errHandlerOver)
	require.Equal(t, at, w.read)

	bare := newCapture(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil), testLimit)
	require.ErrorIs(t, http.NewResponseController(bare).SetReadDeadline(at), http.ErrNotSupported)
}

// TestCapture_closeNotify: the writer is an http.CloseNotifier, and notifies at the end of the
// execution.
func TestCapture_closeNotify(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	c := newCapture(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil), testLimit)
	defer c.close()
	var w http.ResponseWriter = c
	over := w.(interface{ CloseNotify() <-chan bool }).CloseNotify()
	select {
	case <-over:
		t.Fatal("got a notification before the end of the execution")
	default:
	}
	end()
	require.True(t, <-over)
}

// TestCapture_afterFinish: writes after the handler has returned change nothing.
func TestCapture_afterFinish(t *testing.T) {
	w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	c := newCapture(w, httptest.NewRequest(http.MethodPost, "/", nil), testLimit)
	defer c.close()
	h := c.Header()
	h.Set("Trailer", "X-Sum")
	h.Set("X-A", "first")
	c.WriteHeader(http.StatusCreated)
	write(c, "first")
	h.Set("X-Sum", "1")
	c.finish()

	var left sync.WaitGroup
	left.Go(func() {
		for n := range 1000 {
			h.Set("X-"+strconv.Itoa(n), "late")
			h.Set("X-Sum", "late")
			c.Header().Set("X-A", "late")
		}
	})
	_, err := fmt.Fprint(c, "late")
	require.ErrorIs(t, err, errHandlerOver)
	_, err = c.WriteString("late")
	require.ErrorIs(t, err, errHandlerOver)
	c.WriteHeader(http.StatusEarlyHints)
	c.Flush()
	require.Equal(t, http.Header{
		"X-A": {"first"}, "Content-Type": {"text/plain; charset=utf-8"}, "Content-Length": nil,
		"Trailer": {"X-Sum"}, "Trailer:X-Sum": {"1"},
	}, c.result().Header)
	require.NoError(t, c.sendResponse(w))
	left.Wait()
	require.Equal(t, []int{201}, w.codes)
	require.Equal(t, "first", w.Body.String())
	require.Equal(t, http.Header{"Trailer": {"X-Sum"}, "X-A": {"first"}, "X-Sum": {"1"}, "Content-Length": nil}, w.Header())
}

// TestCapture_close: a response can be dropped while the handler writes it.
func TestCapture_close(t *testing.T) {
	w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	c := newCapture(w, httptest.NewRequest(http.MethodPost, "/", nil), 100)
	begun := make(chan struct{})
	var handler sync.WaitGroup
	handler.Go(func() {
		for n := range 2000 {
			c.Header().Set("X-"+strconv.Itoa(n), "late")
			write(c, "late")
			c.Flush()
			if n == 100 {
				close(begun)
			}
		}
		c.WriteHeader(http.StatusEarlyHints)
	})
	<-begun
	c.close()
	_, err := fmt.Fprint(c, "late")
	require.ErrorIs(t, err, errHandlerOver)
	handler.Wait()
	require.Empty(t, w.codes)
	require.Zero(t, w.Body.Len())
	require.Empty(t, w.Header())
}

// TestCapture_manyWriters: each write of a handler's goroutines is complete or rejected. Some
// goroutines outlive the handler.
func TestCapture_manyWriters(t *testing.T) {
	piece := []byte("0123456789")
	w := httptest.NewRecorder()
	c := newCapture(w, httptest.NewRequest(http.MethodPost, "/", nil), 1000)
	defer c.close()
	c.WriteHeader(http.StatusOK)
	var writers sync.WaitGroup
	for range 16 {
		writers.Go(func() {
			for n := range 200 {
				if _, err := c.Write(piece); err != nil {
					return
				}
				if n%10 == 0 {
					c.Flush()
				}
			}
		})
	}
	c.finish()
	require.NoError(t, c.sendResponse(w))
	writers.Wait()
	require.Equal(t, strings.Repeat(string(piece), w.Body.Len()/len(piece)), w.Body.String())
}

// TestCapture_tooLarge: the limit of the memory is exact to the byte, and the file has no name.
func TestCapture_tooLarge(t *testing.T) {
	for _, row := range []struct {
		name     string
		limit    int64
		writes   []int
		tooLarge bool
	}{
		{"nothing, and no room", 0, nil, false},
		{"a byte, and no room", 0, []int{1}, true},
		{"one below", 100, []int{99}, false},
		{"all of it", 100, []int{60, 40}, false},
		{"one above", 100, []int{60, 41}, true},
		{"above at once", 100, []int{100000}, true},
		{"above in many", 100, []int{99, 1, 1, 5000, 70000, 3}, true},
		{"no limit", -1, []int{100000}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			t.Setenv("TMP", dir)
			w := httptest.NewRecorder()
			c := newCapture(w, httptest.NewRequest(http.MethodPost, "/", nil), row.limit)
			var want bytes.Buffer
			for n, size := range row.writes {
				p := bytes.Repeat([]byte{byte('a' + n)}, size)
				want.Write(p)
				written, err := io.Copy(c, onlyReader{bytes.NewReader(p)})
				require.NoError(t, err)
				require.EqualValues(t, size, written)
			}
			c.finish()
			require.Equal(t, row.tooLarge, c.body.beyond)
			require.NoError(t, c.body.err)
			if row.limit >= 0 {
				require.LessOrEqual(t, int64(len(c.body.memory)), row.limit)
			}
			require.NoError(t, c.sendResponse(w))
			require.Equal(t, want.String(), w.Body.String())
			if !row.tooLarge {
				require.Equal(t, want.String(), string(c.result().Body))
			}
			file := c.body.file
			require.Equal(t, file != nil && runtime.GOOS == "windows", c.body.named)
			c.close()
			c.close()
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
			if file != nil {
				require.ErrorIs(t, file.Close(), os.ErrClosed)
			}
		})
	}
}

// TestHandler_givesTheFileBack: the file is removed for each end of a request, also if the
// response was not sent.
func TestHandler_givesTheFileBack(t *testing.T) {
	large := strings.Repeat("x", 1000)
	for _, row := range []struct {
		name string
		next http.HandlerFunc
		w    http.ResponseWriter
	}{
		{"sent", func(w http.ResponseWriter, _ *http.Request) { write(w, large) }, httptest.NewRecorder()},
		{"a failure", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			write(w, large)
		}, httptest.NewRecorder()},
		{"a panic", func(w http.ResponseWriter, _ *http.Request) {
			write(w, large)
			panic(http.ErrAbortHandler)
		}, httptest.NewRecorder()},
		{"a client that has gone", func(w http.ResponseWriter, _ *http.Request) {
			write(w, large)
		}, &brokenWriter{ResponseRecorder: httptest.NewRecorder()}},
		{"too much", func(w http.ResponseWriter, _ *http.Request) {
			write(w, large, large)
		}, httptest.NewRecorder()},
	} {
		t.Run(row.name, func(t *testing.T) {
			var c *capture
			var file *os.File
			h := NewHandler(new(Memory), func(*http.Request) (string, error) { return "", nil },
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					c = w.(*capture)
					write(w, large[:200])
					file = c.body.file
					row.next(w, r)
				}))
			h.MaxResponse, h.MaxSpool = 100, 1500
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", "k")
			func() {
				defer func() { _ = recover() }()
				h.ServeHTTP(row.w, r)
			}()
			require.NotNil(t, file)
			require.Nil(t, c.body.file)
			require.ErrorIs(t, file.Close(), os.ErrClosed)
		})
	}
}

// TestCapture_namedFile simulates a system on which an open file cannot be removed.
func TestCapture_namedFile(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	s := spool{file: file, named: true}
	s.close()
	require.NoFileExists(t, file.Name())
}

// TestCapture_fullDisk: the handler's write fails if the response cannot be kept, and nothing of it
// is sent.
func TestCapture_fullDisk(t *testing.T) {
	for _, row := range []struct {
		name   string
		breaks func(t *testing.T, c *capture)
	}{
		{"no directory", func(t *testing.T, _ *capture) {
			nowhere := t.TempDir() + "/nowhere"
			t.Setenv("TMPDIR", nowhere)
			t.Setenv("TMP", nowhere)
		}},
		{"a write fails", func(t *testing.T, c *capture) {
			write(c, "some more")
			require.NoError(t, c.body.file.Close())
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			c := newCapture(w, httptest.NewRequest(http.MethodPost, "/", nil), 4)
			defer c.close()
			c.WriteHeader(http.StatusCreated)
			write(c, "fits")
			row.breaks(t, c)
			n, err := c.Write(make([]byte, 1<<20))
			require.Error(t, err)
			require.Less(t, n, 1<<20)
			_, again := c.WriteString("more")
			require.Equal(t, err, again)
			c.finish()
			require.Equal(t, err, c.body.err)
			require.True(t, c.body.beyond)
			require.Nil(t, c.body.file, "a lost response takes no room")
			require.Equal(t, err, c.sendResponse(w))
			require.Zero(t, w.Body.Len())
			require.False(t, w.Flushed)
		})
	}
}

// TestCapture_clientGone: sendResponse returns an error.
func TestCapture_clientGone(t *testing.T) {
	for name, after := range map[string]int{"in the first write": 0, "in the file": 1} {
		t.Run(name, func(t *testing.T) {
			w := &brokenWriter{ResponseRecorder: httptest.NewRecorder(), after: after}
			c := newCapture(w, httptest.NewRequest(http.MethodPost, "/", nil), testLimit)
			defer c.close()
			write(c, strings.Repeat("a", 2*testLimit))
			c.finish()
			require.ErrorIs(t, c.sendResponse(w), io.ErrClosedPipe)
			require.Equal(t, after*testLimit, w.Body.Len())
		})
	}
}

type brokenWriter struct {
	*httptest.ResponseRecorder

	after int
}

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.after--; w.after < 0 {
		return 0, io.ErrClosedPipe
	}
	return w.ResponseRecorder.Write(p)
}

// TestCapture_overRecorder: writers of other packages get the handler's own calls, including an
// implicit WriteHeader.
func TestCapture_overRecorder(t *testing.T) {
	for _, row := range []struct {
		name    string
		handler http.HandlerFunc
		codes   []int
	}{
		{"nothing", func(http.ResponseWriter, *http.Request) {}, nil},
		{"implicit", func(w http.ResponseWriter, _ *http.Request) { write(w, "<html>") }, nil},
		{"flushed", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, nil},
		{"explicit", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK); write(w, "<html>") }, []int{200}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			bare, w := httptest.NewRecorder(), &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
			row.handler(bare, r)
			captured(row.handler, testLimit)(w, r)
			require.Equal(t, row.codes, w.codes)
			require.Equal(t, bare.Result(), w.Result())
		})
	}
}

// TestCapture_invalidStatus panics as net/http does.
func TestCapture_invalidStatus(t *testing.T) {
	for _, code := range []int{-1, 0, 99, 1000} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			c := newCapture(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil), testLimit)
			require.PanicsWithValue(t, fmt.Sprintf("invalid WriteHeader code %d", code), func() { c.WriteHeader(code) })
			c.WriteHeader(http.StatusAccepted)
			require.NotPanics(t, func() { c.WriteHeader(code) }, "superfluous, and ignored")
			c.finish()
			require.Equal(t, 202, c.code)
		})
	}
}
