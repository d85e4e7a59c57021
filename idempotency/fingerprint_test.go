package idempotency

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

// asked is a request: method, target, header and body.
type asked struct {
	target  string // "POST /charges?a=1"
	kind    string // Content-Type; "": none
	coding  string // Content-Encoding; "": none
	content string
}

func (a asked) fingerprint() Fingerprint {
	method, target, _ := strings.Cut(a.target, " ")
	r := httptest.NewRequest(method, target, nil)
	if a.kind != "" {
		r.Header.Set("Content-Type", a.kind)
	}
	if a.coding != "" {
		r.Header.Set("Content-Encoding", a.coding)
	}
	return RequestFingerprint(r, []byte(a.content))
}

func to(target string) asked       { return asked{target: target} }
func sent(kind, body string) asked { return asked{target: "POST /", kind: kind, content: body} }
func asJSON(body string) asked     { return sent("application/json", body) }
func form(lines ...string) asked {
	return sent("multipart/form-data; boundary=B", strings.Join(lines, "\r\n"))
}
func disposition(rest string) asked {
	return form("--B", "Content-Disposition: "+rest, "", "1", "--B--", "")
}

func TestRequestFingerprint(t *testing.T) {
	const j = "application/json"
	formWithBoundary := func(b string) asked {
		return sent("multipart/form-data; boundary="+b,
			strings.ReplaceAll("--B\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--B\r\nContent-Type: text/css\r\n\r\n2\r\n--B--\r\n", "B", b))
	}
	for _, row := range []struct {
		name string
		a, b asked
		same bool
	}{
		{"the same", to("POST /a?b=c"), to("POST /a?b=c"), true},
		{"method", to("POST /"), to("PUT /"), false},
		{"method in other letters", to("POST /"), to("post /"), false},
		{"path", to("POST /a"), to("POST /b"), false},
		{"path with a slash more", to("POST /a"), to("POST /a/"), false},
		{"path with an empty segment", to("POST /a/b"), to("POST /a//b"), false},
		{"path with dots", to("POST /a"), to("POST /b/../a"), false},
		{"path with an escaped slash", to("POST /a/b"), to("POST /a%2Fb"), false},
		{"path and query", to("POST /a?b"), to("POST /a%3Fb"), false},
		{"host", to("POST http://one.test/a"), to("POST http://two.test/a"), true},
		{"an empty query", to("POST /a"), to("POST /a?"), true},
		{"query, other order of names", to("POST /?a=1&b=2"), to("POST /?b=2&a=1"), true},
		{"query, other order of values", to("POST /?a=1&a=2"), to("POST /?a=2&a=1"), false},
		{"query, other order of names, one repeated", to("POST /?a=1&b=3&a=2"), to("POST /?b=3&a=1&a=2"), true},
		{"query, a pair twice", to("POST /?a=1"), to("POST /?a=1&a=1"), false},
		{"query, other value", to("POST /?a=1"), to("POST /?a=2"), false},
		{"query, other name", to("POST /?a=1"), to("POST /?b=1"), false},
		{"query, values exchanged", to("POST /?a=1&b=2"), to("POST /?a=2&b=1"), false},
		{"query, where a name ends", to("POST /?a=bc"), to("POST /?ab=c"), false},
		{"query, escaped", to("POST /?a=%41+b"), to("POST /?%61=A%20b"), true},
		{"query, what looks like a pair", to("POST /?a=1&b=2"), to("POST /?a=1%26b%3D2"), false},
		{"query, malformed", to("POST /?a=%zz&b=1"), to("POST /?b=1&a=%zz"), false},
		{"query, malformed and another malformed", to("POST /?a=1;b=2"), to("POST /?a=1;b=3"), false},
		{"query, malformed and well-formed", to("POST /?a=1&b=%zz"), to("POST /?a=1"), false},

		{"JSON, blanks", asJSON("{}"), asJSON("{ }"), false},
		{"JSON as text", asJSON(`{}`), sent("text/plain", `{}`), false},
		{"JSON and nothing", asJSON(`{}`), sent("", `{}`), false},
		{"JSON by suffix", sent("application/vnd.api+json", `{"a":1,"b":2}`), sent("application/vnd.api+json", `{"a":1,"b":2}`), true},
		{"JSON by suffix and JSON", sent("application/vnd.api+json", `{}`), asJSON(`{}`), false},
		{"JSON with its charset", sent(j+"; charset=UTF-8", `{"a":1,"b":2}`), sent("Application/JSON;charset=utf-8", `{"a":1,"b":2}`), true},
		{"JSON with and without its charset", sent(j+"; charset=utf-8", `{}`), asJSON(`{}`), true},
		{"JSON with another charset", sent(j+"; charset=utf-16", `{}`), asJSON(`{}`), false},
		{"JSON with a version", sent(j+"; version=1", `{}`), sent(j+"; version=2", `{}`), false},
		{"JSON with parameters in another order", sent(j+"; a=1; b=2", `{}`), sent(j+`;b="2";A=1`, `{}`), true},
		{"JSON, packed", asked{"POST /", j, "gzip", "{} "}, asked{"POST /", j, "gzip", "{}"}, false},
		{"JSON, packed and not", asked{"POST /", j, "gzip", "{}"}, asJSON("{}"), false},
		{"JSON, packed in two ways", asked{"POST /", j, "gzip", "{}"}, asked{"POST /", j, "br", "{}"}, false},

		{"text", sent("text/plain", "a b"), sent("text/plain", "a  b"), false},
		{"text, letters that do not matter", sent("text/plain; charset=utf-8", "a"), sent(`TEXT/PLAIN;Charset="utf-8"`, "a"), true},
		{"text, where a parameter's name ends", sent("text/plain; a=bc", "a"), sent("text/plain; ab=c", "a"), false},
		{"a form's order", sent("application/x-www-form-urlencoded", "a=1&b=2"), sent("application/x-www-form-urlencoded", "b=2&a=1"), false},
		{"type malformed", sent("application/json;;;=", "{}"), sent("application/json;;=", "{}"), false},
		{"type malformed, blanks", sent("json/", "{}"), sent("json/", "{ }"), false},
		{"extended parameters", sent("text/plain; a*=utf-16''x", "a"), sent("text/plain", "a"), false},

		{"multipart, another boundary", formWithBoundary("B"), formWithBoundary("--------WebKit7MA4YWxk"), true},
		{"multipart, no CRLF at the end", form("--B", "", "1", "--B--", ""), form("--B", "", "1", "--B--"), false},
		{"multipart, another subtype", form("--B", "", "1", "--B--"), sent("multipart/mixed; boundary=B", "--B\r\n\r\n1\r\n--B--"), false},
		{"multipart, another parameter", form("--B", "", "1", "--B--"), sent("multipart/form-data; boundary=B; type=a", "--B\r\n\r\n1\r\n--B--"), false},
		{"multipart, other content", form("--B", "", "1", "--B--"), form("--B", "", "2", "--B--"), false},
		{"multipart, one part or two", form("--B", "", "1", "--B", "", "2", "--B--"), form("--B", "", "1\r\n--C\r\n\r\n2", "--B--"), false},
		{"multipart, where content ends", form("--B", "", "1", "--B", "", "2", "--B--"), form("--B", "", "1\x002", "--B--"), false},
		{"multipart, no boundary", sent("multipart/form-data", "--B\r\n\r\n1\r\n--B--"), sent("multipart/form-data", "--B\r\n\r\n1\r\n--B--\r\n"), false},
		{"multipart, packed", asked{"POST /", "multipart/form-data; boundary=B", "gzip", "--B\r\n\r\n1\r\n--B--"}, asked{"POST /", "multipart/form-data; boundary=B", "gzip", "--B\r\n\r\n1\r\n--B--\r\n"}, false},
		{"multipart, none", form("--B--"), form("--B--", ""), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Regexp(t, `^v1:[0-9a-f]{64}$`, row.a.fingerprint())
			require.Equal(t, row.same, row.a.fingerprint() == row.b.fingerprint())
		})
	}
}

// TestFingerprint_version: records outlive the program that wrote them, so the
// fingerprints never change.
func TestFingerprint_version(t *testing.T) {
	for _, row := range []struct {
		name string
		got  Fingerprint
		want Fingerprint
	}{
		{"nothing", to("POST /").fingerprint(), "v1:0b5db0d2900c14e20a53b559ac5d2890caa0f56071a84d3f58da6912e830870e"},
		{"a query", to("POST /a%2Fb?c=d&a=b").fingerprint(), "v1:358c2aa85b347728817ae1308973d72e549b5848016de6156a5db3e93a2f6070"},
		{"JSON", asJSON(`{"b":[1.0,"é"],"a":null}`).fingerprint(), "v1:5bcebfebcc49ccebf652f60e3a5fe1a20c27df407f8216bc8f67d75586b604ef"},
		{"multipart", disposition("form-data; name=a").fingerprint(), "v1:329faad56f9c0548550aa6886d73059140c6e3a297869883ca5e2e1d54da8615"},
		{"text", sent("text/plain; charset=utf-8", "a").fingerprint(), "v1:bcc7a180154ebefd406554ff859667350119a693b013539398335d206ea7419e"},
		{"parts", NewFingerprint([]byte("a"), nil, []byte("b")), "v1:f3968db5650274c8cbab6eb3e2abfa5ca1ed9e78e5f3f5ea0fc6a19032f8a9b7"},
	} {
		t.Run(row.name, func(t *testing.T) { require.Equal(t, row.want, row.got) })
	}
}

func TestNewFingerprint(t *testing.T) {
	seen := map[Fingerprint][]string{}
	for _, parts := range [][]string{
		nil, {""}, {"", ""}, {"a"}, {"a", ""}, {"", "a"}, {"ab", "c"}, {"a", "bc"}, {"abc"}, {"a", "b", "c"},
		{"request"}, {"\x01a"}, {"a\x01b"}, {"a", "b"}, {strings.Repeat("a", 200)}, {strings.Repeat("a", 199), "a"},
	} {
		var list [][]byte
		for _, p := range parts {
			list = append(list, []byte(p))
		}
		fp := NewFingerprint(list...)
		require.Equal(t, fp, NewFingerprint(list...))
		require.Regexp(t, `^v1:[0-9a-f]{64}$`, fp)
		require.NotContains(t, seen, fp, "%q and %q", parts, seen[fp])
		seen[fp] = parts
	}
}

// TestFingerprint_ofHostileMultiparts: time in proportion to the body.
func TestFingerprint_ofHostileMultiparts(t *testing.T) {
	const size = 256 << 10
	repeat := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for name, content := range map[string]string{
		"parts":             repeat("--B"),
		"nearly delimiters": repeat("--"),
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			form(content).fingerprint()
			require.Less(t, time.Since(begun), 10*time.Second)
		})
	}
	pairs := strings.Repeat("a=b&", size/4)
	begun := time.Now()
	to("POST /?" + pairs).fingerprint()
	require.Less(t, time.Since(begun), 10*time.Second)
}

// FuzzRequestFingerprint: no request makes it panic. The same request has the same fingerprint, also with another
// order of the query. Another body is another request.
func FuzzRequestFingerprint(f *testing.F) {
	for _, seed := range []asked{
		asJSON(`{"a":1,"b":2}`), asJSON(`{"a":1,"a":2}`), sent("text/plain", "a"), sent("a/b; c*=d", "a"),
		form("--B", "A: 1", "", "x", "--B--"), form("--B", "", "x", "--B", "", "", "--B--", ""), disposition(`form-data; name="a"; filename=b`),
	} {
		f.Add("a=1&b=2&a=3", seed.kind, []byte(seed.content), []byte(seed.content+" "))
	}
	f.Fuzz(func(t *testing.T, query, kind string, body, other []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.URL.RawQuery = query
		r.Header["Content-Type"] = []string{kind}
		fp := RequestFingerprint(r, body)
		require.Equal(t, fp, RequestFingerprint(r, bytes.Clone(body)))

		if values := r.URL.Query(); len(values) > 0 && values.Encode() == query {
			pairs := strings.Split(query, "&")
			backwards := make([]string, 0, len(pairs))
			for n := range pairs {
				backwards = append(backwards, pairs[len(pairs)-1-n])
			}
			reordered := r.Clone(t.Context())
			reordered.URL.RawQuery = strings.Join(backwards, "&")
			same := true // unless the values of a name have another order now
			for _, list := range values {
				turned := slices.Clone(list)
				slices.Reverse(turned)
				same = same && slices.Equal(list, turned)
			}
			require.Equal(t, same, fp == RequestFingerprint(reordered, body))
		}

		require.Equal(t, bytes.Equal(body, other), fp == RequestFingerprint(r, other))
	})
}

// watchedBody counts, and fails the test when it must not be read.
type watchedBody struct {
	io.Reader

	read, closed int
}

func (b *watchedBody) Read(p []byte) (int, error) { b.read++; return b.Reader.Read(p) }
func (b *watchedBody) Close() error               { b.closed++; return nil }

func TestReadBody(t *testing.T) {
	broken := errors.New("broken")
	large := strings.Repeat("a", 300<<10)
	for _, row := range []struct {
		name   string
		body   io.Reader
		length int64 // as sent
		limit  int64
		want   string
		err    error
		unread bool
	}{
		{"with its length", strings.NewReader("hello"), 5, 10, "hello", nil, false},
		{"chunked", strings.NewReader("hello"), -1, 10, "hello", nil, false},
		{"a byte at a time", iotest.OneByteReader(strings.NewReader("hello")), -1, 10, "hello", nil, false},
		{"data with the end", iotest.DataErrReader(strings.NewReader("hello")), 5, 5, "hello", nil, false},
		{"empty", strings.NewReader(""), -1, 0, "", nil, false},
		{"at the limit", strings.NewReader("hello"), 5, 5, "hello", nil, false},
		{"chunked, at the limit", strings.NewReader("hello"), -1, 5, "hello", nil, false},
		{"large", strings.NewReader(large), int64(len(large)), 1 << 20, large, nil, false},
		{"large and chunked", strings.NewReader(large), -1, 1 << 20, large, nil, false},
		{"no limit", strings.NewReader(large), -1, -1, large, nil, false},
		{"the largest limit", strings.NewReader("hello"), -1, math.MaxInt64, "hello", nil, false},
		{"unpacked on the way", strings.NewReader("hello"), 2, 10, "hello", nil, false},
		{"unpacked on the way, and shorter than packed", strings.NewReader("hello"), 9, 10, "hello", nil, false},
		{"unpacked on the way, and empty", strings.NewReader(""), 9, 10, "", nil, false},

		{"too large by its word", strings.NewReader("hello"), 11, 10, "", errBodyTooLarge, true},
		{"far too large by its word", strings.NewReader("hello"), math.MaxInt64, 10, "", errBodyTooLarge, true},
		{"too large", strings.NewReader("hello"), -1, 4, "", errBodyTooLarge, false},
		{"too large, and lied", strings.NewReader("hello"), 3, 4, "", errBodyTooLarge, false},
		{"no byte allowed", strings.NewReader("h"), -1, 0, "", errBodyTooLarge, false},
		{"endless", endless{}, -1, 1 << 20, "", errBodyTooLarge, false},
		{"too large and broken", io.MultiReader(strings.NewReader("hello"), iotest.ErrReader(broken)), -1, 4, "", errBodyTooLarge, false},
		{"a smaller limit of an outer handler", http.MaxBytesReader(nil, io.NopCloser(strings.NewReader("hello")), 3), 5, 10, "", errBodyTooLarge, false},
		{"ends early", cut("hel"), 5, 10, "", errBodyCut, false},
		{"ends at once", cut(""), 5, 10, "", errBodyCut, false},
		{"announces much", cut("hel"), 1 << 40, -1, "", errBodyCut, false},
		{"breaks", io.MultiReader(strings.NewReader("hel"), iotest.ErrReader(broken)), 5, 10, "", errBodyCut, false},
		{"times out", iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("hello"))), 5, 10, "", errBodyCut, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			under := &watchedBody{Reader: row.body}
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Body, r.ContentLength = under, row.length
			body, err := readBody(r, row.limit)
			require.Equal(t, row.length, r.ContentLength)
			if row.err != nil {
				require.ErrorIs(t, err, row.err)
				require.Equal(t, row.name == "breaks", errors.Is(err, broken), "the cause is in the error")
				require.Nil(t, body)
				require.Equal(t, row.unread, under.read == 0)
				return
			}
			require.NoError(t, err)
			require.Equal(t, row.want, string(body))

			// The handler reads the body.
			again, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Equal(t, row.want, string(again))
			_, err = r.Body.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
			require.Zero(t, under.closed)
			require.NoError(t, r.Body.Close())
			require.Equal(t, 1, under.closed)
			_, err = r.Body.Read(make([]byte, 1))
			require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
		})
	}
}

// cut is a body as net/http reads it from a connection that ends too early.
func cut(body string) io.Reader {
	return io.MultiReader(strings.NewReader(body), iotest.ErrReader(io.ErrUnexpectedEOF))
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestReadBody_trustsNoLength: a large Content-Length alone allocates no memory.
func TestReadBody_trustsNoLength(t *testing.T) {
	under := &watchedBody{Reader: readerFunc(func(p []byte) (int, error) {
		require.LessOrEqual(t, len(p), firstRead+1)
		return 0, io.ErrUnexpectedEOF
	})}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Body, r.ContentLength = under, 1<<40
	_, err := readBody(r, -1)
	require.ErrorIs(t, err, errBodyCut)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestUnreadBodyClosedWhileRead is what httputil.ReverseProxy does.
func TestUnreadBodyClosedWhileRead(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("a", 100<<10)))
	_, err := readBody(r, -1)
	require.NoError(t, err)
	var reader sync.WaitGroup
	reader.Go(func() { _, _ = io.Copy(io.Discard, iotest.OneByteReader(r.Body)) })
	require.NoError(t, r.Body.Close())
	reader.Wait()
}

// TestReadBody_overTheWire: bodies as net/http reads them from a connection.
func TestReadBody_overTheWire(t *testing.T) {
	for _, row := range []struct {
		name, request, want string
	}{
		{"with its length", "Content-Length: 5\r\n\r\nhello", `"hello" 5 <nil> map[]`},
		{"chunked with a trailer", "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", `"hello" -1 <nil> map[X-Sum:[1]]`},
		{"expects a continue", "Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello", `"hello" 5 <nil> map[]`},
		{"expects a continue, too large", "Content-Length: 50\r\nExpect: 100-continue\r\n\r\n", `"" 50 idempotency: request body too large map[]`},
		{"ends early", "Content-Length: 6\r\n\r\nhello", `"" 6 idempotency: request body cut short: unexpected EOF map[]`},
		{"chunks that are none", "Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n", `"" -1 idempotency: request body cut short: invalid byte in chunk length map[]`},
		{"chunks too many", "Transfer-Encoding: chunked\r\n\r\n6\r\nhello!\r\n6\r\nhello!\r\n0\r\n\r\n", `"" -1 idempotency: request body too large map[]`},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := make(chan string, 1)
			s := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
				body, err := readBody(r, 10)
				got <- fmt.Sprintf("%q %d %v %v", body, r.ContentLength, err, r.Trailer)
			}, false)
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			head, body, _ := strings.Cut(row.request, "\r\n\r\n")
			_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", head)
			answer := bufio.NewReader(conn)
			if strings.Contains(row.name, "continue") && body != "" {
				line, err := answer.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
			}
			_, err = io.WriteString(conn, body)
			require.NoError(t, err)
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
			require.Equal(t, row.want, <-got)
		})
	}
}
