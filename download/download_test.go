package download_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/download"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

var errBroken = errors.New("connection reset")

// origin is a Base that serves content honestly, as http.ServeContent does, but for what the plan
// does to each response.
type origin struct {
	content string
	tag     string
	plan    []change // by request; later requests get an honest response

	mu       sync.Mutex
	requests []*http.Request
	open     int // bodies that are not closed
}

type change func(*http.Response)

func (o *origin) RoundTrip(req *http.Request) (*http.Response, error) {
	o.mu.Lock()
	o.requests = append(o.requests, req)
	n := len(o.requests)
	o.open++
	o.mu.Unlock()
	w := httptest.NewRecorder()
	w.Header().Set("ETag", o.tag)
	w.Header().Set("Content-Type", "text/plain")
	http.ServeContent(w, req, "", time.Time{}, strings.NewReader(o.content))
	resp := w.Result()
	resp.Request = req
	resp.ContentLength, _ = strconv.ParseInt(resp.Header.Get("Content-Length"), 10, 64)
	resp.Body = &part{Reader: resp.Body, origin: o, context: req.Context()}
	if n <= len(o.plan) && o.plan[n-1] != nil {
		o.plan[n-1](resp)
	}
	return resp, nil
}

type part struct {
	io.Reader

	origin  *origin
	context context.Context
	once    sync.Once
}

func (p *part) Read(b []byte) (int, error) {
	if err := p.context.Err(); err != nil {
		return 0, err
	}
	return p.Reader.Read(b)
}

func (p *part) Close() error {
	p.once.Do(func() {
		p.origin.mu.Lock()
		p.origin.open--
		p.origin.mu.Unlock()
	})
	return nil
}

// cut ends the body with err after n bytes.
func cut(n int64, err error) change {
	return func(resp *http.Response) {
		p, _ := resp.Body.(*part)
		p.Reader = io.MultiReader(io.LimitReader(p.Reader, n), failing{err})
	}
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

// header sets a field of the response, or removes it.
func header(name, value string) change {
	return func(resp *http.Response) {
		if resp.Header.Set(name, value); value == "" {
			resp.Header.Del(name)
		}
	}
}

func both(a, b change) change { return func(resp *http.Response) { a(resp); b(resp) } }

// content replaces the status and the body.
func content(status int, text string) change {
	return func(resp *http.Response) {
		p, _ := resp.Body.(*part)
		p.Reader, resp.StatusCode, resp.ContentLength = strings.NewReader(text), status, int64(len(text))
	}
}

const (
	alphabet = "abcdefghijklmnopqrstuvwxyz"
	strong   = `"v1"`
)

func request(t *testing.T, ctx context.Context, header ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://files.test/a", http.NoBody)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

// B1: the bytes are those of one representation, or there is an error.
func TestBytes(t *testing.T) {
	first := cut(10, errBroken)
	for _, row := range []struct {
		name     string
		plan     []change
		want     string // "": the whole alphabet
		requests int
		why      string // "": no error
	}{
		{"whole", nil, "", 1, ""},
		{"cut once", []change{first}, "", 2, ""},
		{"cut by an early end", []change{cut(10, io.EOF)}, "", 2, ""},
		{"cut before the first byte", []change{cut(0, errBroken)}, "", 2, ""},
		{"cut after the last byte", []change{cut(26, errBroken)}, "", 1, ""},
		{"cut at each byte", []change{cut(1, errBroken), cut(1, errBroken), cut(1, errBroken), cut(1, errBroken)}, "", 5, ""},
		{"cut twice at the same byte", []change{first, cut(0, errBroken), cut(0, errBroken)}, "", 4, ""},
		{"a shorter range than requested", []change{first, both(
			content(206, "klm"), header("Content-Range", "bytes 10-12/26"))}, "", 3, ""},

		{"the file has changed", []change{first, content(200, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")}, alphabet[:10], 2, "status 200"},
		{"the file is gone", []change{first, content(404, "no")}, alphabet[:10], 2, "status 404"},
		{"the server fails", []change{first, content(503, "no")}, alphabet[:10], 2, "status 503"},
		{"redirected", []change{first, content(302, "no")}, alphabet[:10], 2, "status 302"},
		{"the file is gone after an early end", []change{cut(10, io.EOF), content(404, "no")}, alphabet[:10], 2, "unexpected EOF"},
		{"another ETag", []change{first, header("ETag", `"v2"`)}, alphabet[:10], 2, "another ETag"},
		{"a weak ETag", []change{first, header("ETag", `W/"v1"`)}, alphabet[:10], 2, "another ETag"},
		{"no ETag", []change{first, header("ETag", "")}, alphabet[:10], 2, "another ETag"},
		{"another encoding", []change{first, header("Content-Encoding", "gzip")}, alphabet[:10], 2, "another Content-Encoding"},
		{"net/http decompressed", []change{first, func(r *http.Response) { r.Uncompressed = true }}, alphabet[:10], 2, "another Content-Encoding"},
		{"bytes again (undici#3356)", []change{first, header("Content-Range", "bytes 8-25/26")}, alphabet[:10], 2, "bytes 8-25 of 26"},
		{"bytes left out", []change{first, header("Content-Range", "bytes 12-25/26")}, alphabet[:10], 2, "bytes 12-25 of 26"},
		{"from the beginning (undici#2986)", []change{first, both(
			content(206, alphabet), header("Content-Range", "bytes 0-25/26"))}, alphabet[:10], 2, "bytes 0-25 of 26"},
		{"another total", []change{first, header("Content-Range", "bytes 10-25/27")}, alphabet[:10], 2, "of 27"},
		{"an unknown total (undici#5120)", []change{first, header("Content-Range", "bytes 10-25/*")}, alphabet[:10], 2, "no valid Content-Range"},
		{"no Content-Range", []change{first, header("Content-Range", "")}, alphabet[:10], 2, "no valid Content-Range"},
		{"two ranges", []change{first, func(r *http.Response) { r.Header.Add("Content-Range", "bytes 10-25/26") }}, alphabet[:10], 2, "no valid"},
		{"several ranges in one body, with a Content-Range", []change{first, header("Content-Type", "multipart/byteranges; boundary=x")}, alphabet[:10], 2, "more than one range"},
		{"other units", []change{first, header("Content-Range", "lines 10-25/26")}, alphabet[:10], 2, "no valid Content-Range"},
		{"a sign", []change{first, header("Content-Range", "bytes +10-25/26")}, alphabet[:10], 2, "no valid Content-Range"},
		{"beyond the total", []change{first, header("Content-Range", "bytes 10-26/26")}, alphabet[:10], 2, "no valid Content-Range"},
		{"backwards", []change{first, header("Content-Range", "bytes 10-9/26")}, alphabet[:10], 2, "no valid Content-Range"},
		{"lengths that differ", []change{first, func(r *http.Response) { r.ContentLength = 3 }}, alphabet[:10], 2, "differ"},
		{"a 206 with too many bytes", []change{first, both(
			content(206, "klmnopqrstuvwxyzabc"), func(r *http.Response) { r.ContentLength = -1 })}, alphabet, 2, "longer"},
		{"a 200 with too many bytes", []change{func(r *http.Response) {
			content(200, alphabet+"!")(r)
			r.ContentLength = 26
		}}, alphabet, 1, "longer"},
	} {
		for _, size := range []int{1, 7, 512} {
			bubble.Run(t, fmt.Sprintf("%s, reads of %d", row.name, size), func(t *testing.T) {
				o := &origin{content: alphabet, tag: strong, plan: row.plan}
				resp, err := (&download.Transport{Base: o}).RoundTrip(request(t, t.Context(), "If-None-Match", `"v0"`))
				require.NoError(t, err)
				got, err := readBy(size, resp.Body)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, cmp.Or(row.want, alphabet), string(got))
				require.Len(t, o.requests, row.requests)
				require.Zero(t, o.open, "each body is closed")
				if row.why == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, row.why)
				require.NotErrorIs(t, err, io.EOF)
				if row.why != "longer" && row.why != "unexpected EOF" {
					require.ErrorIs(t, err, errBroken)
				}
				_, again := resp.Body.Read(make([]byte, 1))
				require.Equal(t, err, again, "the error stays")
			})
		}
	}
}

// readBy is io.ReadAll with reads of the size.
func readBy(size int, r io.Reader) ([]byte, error) {
	var all bytes.Buffer
	_, err := io.CopyBuffer(struct{ io.Writer }{&all}, struct{ io.Reader }{r}, make([]byte, size))
	return all.Bytes(), err
}

// B1: what cannot be continued passes unchanged.
func TestPassesUnchanged(t *testing.T) {
	for _, row := range []struct {
		name     string
		disabled bool
		give     func(*http.Request)
		change   change
	}{
		{"disabled", true, nil, nil},
		{"HEAD (undici#5610)", false, func(r *http.Request) { r.Method = http.MethodHead }, nil},
		{"POST", false, func(r *http.Request) { r.Method = http.MethodPost }, nil},
		{"a GET with a body", false, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("x")) }, nil},
		{"the caller's own range", false, func(r *http.Request) { r.Header.Set("Range", "bytes=0-24") }, nil},
		{"the caller's own encoding", false, func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") }, nil},
		{"no ETag", false, nil, header("ETag", "")},
		{"a weak ETag", false, nil, header("ETag", `W/"v1"`)},
		{"no ranges", false, nil, header("Accept-Ranges", "none")},
		{"ranges not mentioned", false, nil, header("Accept-Ranges", "")},
		{"no length", false, nil, func(r *http.Response) { r.ContentLength = -1 }},
		{"a 206 that nothing asked for (undici#4970)", false, nil, both(content(206, alphabet), header("Content-Range", "bytes 0-25/26"))},
		{"an error", false, nil, content(500, alphabet)},
		{"net/http decompressed", false, nil, func(r *http.Response) { r.Uncompressed = true }},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := cut(10, errBroken)
			if row.change != nil {
				c = both(row.change, c)
			}
			o := &origin{content: alphabet, tag: strong, plan: []change{c}}
			transport := &download.Transport{Base: o}
			if row.disabled {
				transport.MaxResumes = -1
			}
			req := request(t, t.Context())
			if row.give != nil {
				row.give(req)
			}
			resp, err := transport.RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, errBroken, errOf(io.ReadAll(resp.Body)))
			require.NoError(t, resp.Body.Close())
			require.Len(t, o.requests, 1)
		})
	}
}

// The caller's request is not modified; its own conditions are for the first response only.
func TestRequests(t *testing.T) {
	o := &origin{content: alphabet, tag: strong, plan: []change{cut(10, errBroken)}}
	req := request(t, t.Context(), "Authorization", "secret", "If-None-Match", `"v0"`, "If-Match", strong)
	want := req.Header.Clone()
	resp, err := (&download.Transport{Base: o}).RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, want, req.Header)
	req.Header.Set("Authorization", "of another call") // a caller may use its request again
	req.URL.Host = "other.test"
	require.NoError(t, errOf(io.ReadAll(resp.Body)))
	require.NoError(t, resp.Body.Close())

	require.Len(t, o.requests, 2)
	want.Set("Accept-Encoding", "identity")
	require.Equal(t, want, o.requests[0].Header)
	require.Equal(t, http.Header{
		"Authorization": {"secret"}, "Accept-Encoding": {"identity"}, "Range": {"bytes=10-"}, "If-Range": {strong},
	}, o.requests[1].Header)
	require.Equal(t, "files.test", o.requests[1].URL.Host)

	o = &origin{content: alphabet, tag: strong}
	req = request(t, t.Context())
	req.Header = nil
	resp, err = (&download.Transport{Base: o}).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

// A Base, such as a fake in a test, may return no response or one without a body.
func TestIncompleteBase(t *testing.T) {
	for _, row := range []struct {
		name   string
		change change
		want   string
	}{
		{"no response", nil, "neither a response nor an error"},
		{"no body", func(r *http.Response) { r.StatusCode, r.Body = 500, nil }, "status 500"},
		{"no body of a part", func(r *http.Response) { r.Body = nil }, "1 brought no byte"},
	} {
		t.Run(row.name, func(t *testing.T) {
			plan := []change{cut(10, errBroken), row.change}
			transport := &download.Transport{MaxResumes: 1, Base: incomplete{&origin{content: alphabet, tag: strong, plan: plan}}}
			resp, err := transport.RoundTrip(request(t, t.Context()))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.ErrorContains(t, err, row.want)
			require.Equal(t, alphabet[:10], string(got))
			require.NoError(t, resp.Body.Close())
			if row.change == nil {
				require.ErrorContains(t, errOf(transport.RoundTrip(request(t, t.Context()))), row.want)
			}
		})
	}
}

// incomplete returns nothing after the plan, and for a nil in it.
type incomplete struct{ *origin }

func (i incomplete) RoundTrip(req *http.Request) (*http.Response, error) {
	if n := len(i.requests); n >= len(i.plan) || i.plan[n] == nil {
		i.requests = append(i.requests, req)
		return nil, nil //nolint:nilnil // this is what it is for
	}
	return i.origin.RoundTrip(req)
}

// MaxResumes counts resumes without a byte; the second one and later ones wait.
func TestMaxResumes(t *testing.T) {
	for _, row := range []struct {
		name     string
		max      int
		each     int64 // bytes of each response
		requests int
		waits    bool
		fails    bool
	}{
		{"the default", 0, 0, 11, true, true},
		{"one", 1, 0, 2, false, true},
		{"three", 3, 0, 4, true, true},
		{"progress starts again", 1, 1, 26, false, false},
		{"negative", -1, 0, 1, false, true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			o := &origin{content: alphabet, tag: strong}
			for range 100 {
				o.plan = append(o.plan, cut(row.each, errBroken))
			}
			began := time.Now()
			resp, err := (&download.Transport{Base: o, MaxResumes: row.max}).RoundTrip(request(t, t.Context()))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, resp.Body.Close())
			require.Len(t, o.requests, row.requests)
			require.Equal(t, row.waits, time.Since(began) > 0)
			require.Less(t, time.Since(began), 20*time.Second)
			if row.fails {
				require.ErrorIs(t, err, errBroken)
				return
			}
			require.NoError(t, err)
			require.Equal(t, alphabet, string(got))
		})
	}
}

// B2: Close and the caller's context end a read, a wait and a resume.
func TestEnd(t *testing.T) {
	hanging := func(r *http.Response) {
		p, _ := r.Body.(*part)
		p.Reader = blocked{r.Request.Context()}
	}
	for _, row := range []struct {
		name string
		plan []change // of the second request and those after it
		hang bool     // the second request gets no response, or one
		late bool     // after its context has ended
	}{
		{"while a resume is sent", nil, true, false},
		{"while a resume is sent, and its response is late", nil, true, true},
		{"while a resume is read", []change{hanging}, false, false},
		{"while it waits", slices.Repeat([]change{cut(0, errBroken)}, 9), false, false},
	} {
		for _, way := range []string{"close", "cancel", "deadline"} {
			bubble.Run(t, row.name+", "+way, func(t *testing.T) {
				o := &origin{content: alphabet, tag: strong, plan: append([]change{cut(10, errBroken)}, row.plan...)}
				ctx, cancel := context.WithCancel(t.Context())
				if way == "deadline" {
					ctx, cancel = context.WithTimeout(t.Context(), 40*time.Millisecond)
				}
				defer cancel()
				base := &second{origin: o, hang: row.hang, late: row.late}
				resp, err := (&download.Transport{Base: base}).RoundTrip(request(t, ctx))
				require.NoError(t, err)
				done := make(chan error)
				go func() { done <- errOf(io.ReadAll(resp.Body)) }()
				time.Sleep(40 * time.Millisecond)
				began := time.Now()
				switch way {
				case "close":
					require.NoError(t, resp.Body.Close())
				case "cancel":
					cancel()
				}
				err = <-done
				require.Error(t, err)
				require.NotErrorIs(t, err, io.EOF)
				require.Zero(t, time.Since(began))
				if way == "cancel" {
					require.ErrorIs(t, err, context.Canceled)
				}
				require.NoError(t, resp.Body.Close())
				require.Zero(t, o.open)
				require.Error(t, errOf(resp.Body.Read(make([]byte, 1))))
			})
		}
	}
}

// second is a Base. Its second response does not come, or comes too late.
type second struct {
	*origin

	hang, late bool
	sent       int
}

func (s *second) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.sent++; s.hang && s.sent == 2 {
		<-req.Context().Done()
		if !s.late {
			return nil, req.Context().Err()
		}
	}
	return s.origin.RoundTrip(req)
}

type blocked struct{ context.Context }

func (b blocked) Read([]byte) (int, error) {
	<-b.Done()
	return 0, b.Err()
}

// pace is how a server sends the body of one response.
type pace struct {
	before time.Duration // until the headers
	bytes  int           // of a piece; 0: nothing is sent
	each   time.Duration // before each piece
	pieces int           // after which the connection breaks; 0: it does not
}

func (p pace) serve(w http.ResponseWriter, r *http.Request, content string) {
	from := 0
	text, part := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	if part {
		from, _ = strconv.Atoi(strings.TrimSuffix(text, "-"))
	}
	time.Sleep(p.before)
	w.Header().Set("ETag", strong)
	w.Header().Set("Accept-Ranges", "bytes")
	w.Header().Set("Content-Length", strconv.Itoa(len(content)-from))
	if part {
		w.Header().Set("Content-Range", "bytes "+strconv.Itoa(from)+"-"+strconv.Itoa(len(content)-1)+"/"+strconv.Itoa(len(content)))
		w.WriteHeader(http.StatusPartialContent)
	}
	for piece := 1; from < len(content); piece++ {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(p.each):
		case <-r.Context().Done():
			return
		}
		to := min(from+p.bytes, len(content))
		if _, err := io.WriteString(w, content[from:to]); err != nil {
			return
		}
		if from = to; piece == p.pieces {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}

// B3: a connection that brings fewer than MinProgress bytes in a minute of blocked Reads is given up, and the download ends
// if that goes on. A slow caller is not counted.
func TestMinProgress(t *testing.T) {
	const (
		second = time.Second
		minute = time.Minute
	)
	quick := pace{bytes: 1 << 20}
	drip := pace{bytes: 1, each: 59 * second}
	for _, row := range []struct {
		name     string
		size     int           // above 256 KiB where the download closes a part: below, net/http 1.27 drains it, and holds the clock of the bubble
		least    int64         // MinProgress
		max      int           // MaxResumes
		paces    []pace        // by request; the last one for later ones too
		caller   time.Duration // before each Read
		requests int
		took     time.Duration // at most, without the caller's time
		why      string        // "": the download is whole
	}{
		{"a byte each 59 s: given up ten times, then the end", 300_000, 0, 0, []pace{drip}, 0, 11, 11*minute + 20*second, "fewer bytes in 1m0s than MinProgress (resume: 10 brought too few bytes)"},
		{"a byte each 59 s, one resume", 300_000, 0, 1, []pace{drip}, 0, 2, 2 * minute, "1 brought too few bytes"},
		{"nothing: the same", 300_000, 0, 0, []pace{{each: time.Second}}, 0, 11, 11*minute + 20*second, "brought"},
		{"a byte each 59 s, then quick", 300_000, 0, 0, []pace{drip, quick}, 0, 2, 61 * second, ""},
		{"often slow, with enough between", 500_000, 0, 1, []pace{drip, {bytes: 60_000, pieces: 1}, drip, {bytes: 60_000, pieces: 1}, drip, quick}, 0, 6, 4 * minute, ""},
		{"a byte and a break, each time after 59 s", 300_000, 0, 0, []pace{{bytes: 1, each: 59 * second, pieces: 1}}, 0, 22, 12 * minute, "10 brought too few bytes"},
		{"headers after 5 min, a byte, a break", 300_000, 0, 0, []pace{{before: 5 * minute, bytes: 1, pieces: 1}}, 0, 12, 61 * minute, "10 brought too few bytes"},
		{"just enough: whole", 600_000, 0, 0, []pace{{bytes: 60_000, each: 59 * second}}, 0, 1, 10 * minute, ""},
		{"too few at the end: they are the rest", 60_020, 0, 0, []pace{{bytes: 60_010, each: 50 * second}}, 0, 1, 2 * minute, ""},
		{"a slow caller: whole", 600_000, 0, 0, []pace{quick}, time.Hour, 1, 0, ""},
		{"less is enough", 20, 1, 0, []pace{drip}, 0, 1, 20 * minute, ""},
		{"more is needed", 300_000, 150_000, 0, []pace{{bytes: 60_000, each: 45 * second}, quick}, 0, 2, minute, ""},
		{"no minimum", 20, -1, 0, []pace{{bytes: 1, each: time.Hour}}, 0, 1, 20 * time.Hour, ""},
	} {
		for _, h2 := range []bool{false, true} {
			bubble.Run(t, row.name+", HTTP/2 "+strconv.FormatBool(h2), func(t *testing.T) {
				content := strings.Repeat(alphabet, row.size/len(alphabet)+1)[:row.size]
				requests := 0
				var options []memhttp.Option
				if h2 {
					options = append(options, memhttp.HTTP2())
				}
				server := memhttp.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					requests++
					row.paces[min(requests, len(row.paces))-1].serve(w, r, content)
				}), options...)
				base := &resilienthttp.Transport{Base: server.Transport(), Policy: resilienthttp.Policy{AttemptTimeout: time.Hour}}
				transport := &download.Transport{Base: base, MinProgress: row.least, MaxResumes: row.max}
				began := time.Now()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/a", http.NoBody)
				require.NoError(t, err)
				resp, err := transport.RoundTrip(req)
				require.NoError(t, err)
				got, err := io.ReadAll(slowly{resp.Body, row.caller})
				require.NoError(t, resp.Body.Close())
				if row.caller == 0 {
					require.LessOrEqual(t, time.Since(began), row.took)
				}
				require.Equal(t, row.requests, requests)
				if row.why != "" {
					require.ErrorContains(t, err, row.why)
					require.True(t, strings.HasPrefix(content, string(got)))
					return
				}
				require.NoError(t, err)
				require.Equal(t, content, string(got))
			})
		}
	}
}

// slowly is a caller that takes its time before each Read.
type slowly struct {
	io.Reader

	wait time.Duration
}

func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(s.wait)
	return s.Reader.Read(p)
}

// A panic of a body's Close stays out of the timer's goroutine, where the program could not recover.
func TestMinProgress_closePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		o := &origin{content: alphabet, tag: strong, plan: []change{func(r *http.Response) { r.Body = panicking{blocked{r.Request.Context()}} }}}
		resp, err := (&download.Transport{Base: o}).RoundTrip(request(t, ctx))
		require.NoError(t, err)
		require.PanicsWithValue(t, "close", func() { _, _ = io.ReadAll(resp.Body) })
		require.Error(t, ctx.Err())
	})
}

// panicking is a body of a program: its Close panics.
type panicking struct{ io.Reader }

func (panicking) Close() error { panic("close") }

// B1: whatever a server cuts and says, the bytes are a prefix of the content; all of it without an
// error. Each byte of the script is one response: where it is cut, and how it lies.
func FuzzBytes(f *testing.F) {
	for _, seed := range []string{"", "\x00", "\x0a\x0b\x0c", "\x8a\x1a\x2a", "\x0a\x10", "\x0a\x20\x30\x40\x50\x60\x70", "\xff\xfe\xfd"} {
		f.Add([]byte(seed), uint8(3))
	}
	lies := []change{
		nil, nil, nil,
		header("Content-Range", "bytes 0-25/26"),
		header("Content-Range", "bytes 10-25/*"),
		header("ETag", `"v2"`),
		func(r *http.Response) { r.StatusCode = http.StatusOK },
		func(r *http.Response) { // a shorter part, as RFC 9110 permits
			if first, _, ok := strings.Cut(strings.TrimPrefix(r.Header.Get("Content-Range"), "bytes "), "-"); ok && r.StatusCode == http.StatusPartialContent {
				r.Header.Set("Content-Range", "bytes "+first+"-"+first+"/26")
				r.ContentLength = 1
				cut(1, io.EOF)(r)
			}
		},
	}
	f.Fuzz(func(t *testing.T, script []byte, size uint8) {
		synctest.Test(t, func(t *testing.T) {
			o := &origin{content: alphabet, tag: strong}
			for _, b := range script {
				lie, broken := lies[b>>5], cut(int64(b&31), errBroken)
				o.plan = append(o.plan, func(r *http.Response) {
					if broken(r); lie != nil {
						lie(r)
					}
				})
			}
			resp, err := (&download.Transport{Base: o}).RoundTrip(request(t, t.Context()))
			require.NoError(t, err)
			got, err := readBy(int(size)+1, resp.Body)
			require.NoError(t, resp.Body.Close())
			require.True(t, strings.HasPrefix(alphabet, string(got)), "%q", got)
			require.Equal(t, err == nil, string(got) == alphabet, "%v", err)
			require.Zero(t, o.open)
			require.LessOrEqual(t, len(o.requests), len(script)+1)
		})
	})
}

// pattern is a file of any size: each byte depends on its offset.
type pattern struct{}

func (pattern) ReadAt(p []byte, offset int64) (int, error) {
	for i := range p {
		at := offset + int64(i)
		p[i] = byte(at ^ at>>8 ^ at>>16)
	}
	return len(p), nil
}

func sum(t *testing.T, r io.Reader) (hash.Hash, int64, error) {
	t.Helper()
	h := sha256.New()
	n, err := io.Copy(h, r)
	return h, n, err
}

// B1, B2: a file of a server that cuts each connection after a part of it. The file arrives once,
// with at most 2 % more bytes, and no goroutine or connection is left.
func TestDownload_cutConnections(t *testing.T) {
	const (
		size  = 64 << 20
		piece = size / 20
	)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(pattern{}, 0, size))
	}))
	cutting := &cuttingListener{Listener: server.Listener, after: piece}
	server.Listener = cutting
	server.Start()
	defer server.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	get := func(transport http.RoundTripper) (hash.Hash, int64, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: transport}).Do(req)
		require.NoError(t, err)
		defer func() { require.NoError(t, resp.Body.Close()) }()
		return sum(t, resp.Body)
	}
	_, n, err := get(base)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "a bare client gets a part")
	require.Less(t, n, int64(piece))

	cutting.sent.Store(0)
	got, n, err := get(&download.Transport{Base: &resilienthttp.Transport{Base: base}})
	require.NoError(t, err)
	require.EqualValues(t, size, n)
	want, _, err := sum(t, io.NewSectionReader(pattern{}, 0, size))
	require.NoError(t, err)
	require.Equal(t, want.Sum(nil), got.Sum(nil))
	require.LessOrEqual(t, cutting.sent.Load(), int64(size+size/50))
	t.Logf("%d bytes for a file of %d, over %d connections", cutting.sent.Load(), size, cutting.connections.Load())
}

// cuttingListener closes each connection after so many bytes to the client.
type cuttingListener struct {
	net.Listener

	after             int64
	sent, connections atomic.Int64
}

func (l *cuttingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.connections.Add(1)
	return &cutConn{Conn: conn, listener: l, left: l.after}, nil
}

type cutConn struct {
	net.Conn

	listener *cuttingListener
	left     int64
}

func (c *cutConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b[:min(int64(len(b)), c.left)])
	c.listener.sent.Add(int64(n))
	if c.left -= int64(n); c.left == 0 {
		return n, errors.Join(err, c.Close(), io.ErrShortWrite)
	}
	return n, err
}

// The first request is retried, and the response that breaks is resumed.
func TestDownload_protocols(t *testing.T) {
	for _, row := range []struct {
		name  string
		http2 bool
	}{
		{"HTTP/1.1, zero value", false},
		{"HTTP/2", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			var requests atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, row.http2, r.ProtoMajor == 2)
				switch requests.Add(1) {
				case 1:
					w.WriteHeader(http.StatusInternalServerError)
					return
				case 2: // a part, and the end of the connection or stream
					w.Header().Set("ETag", `"v1"`)
					w.Header().Set("Accept-Ranges", "bytes")
					w.Header().Set("Content-Length", "26")
					_, _ = io.WriteString(w, alphabet[:10])
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("ETag", `"v1"`)
				http.ServeContent(w, r, "", time.Time{}, strings.NewReader(alphabet))
			}))
			defer server.Close()
			transport := &download.Transport{}
			if server.EnableHTTP2 = row.http2; row.http2 {
				server.StartTLS()
				transport.Base = &resilienthttp.Transport{Base: server.Client().Transport}
			} else {
				server.Start()
			}
			client := &http.Client{Transport: transport}
			defer client.CloseIdleConnections()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			require.NoError(t, err)
			resp, err := client.Do(req)
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, alphabet, string(got))
			require.EqualValues(t, 3, requests.Load())
			require.IsType(t, &resilienthttp.Transport{}, transport.Unwrap())
			require.Len(t, resilienthttp.Attempts(resp), 2)
		})
	}
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
