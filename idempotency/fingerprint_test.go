package idempotency

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
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

		{"JSON, member order and blanks", asJSON(`{"a":1,"b":[2,3]}`), asJSON("{ \"b\": [2, 3],\n\"a\": 1 }"), true},
		{"JSON, escapes", asJSON(`{"a":"A/é"}`), asJSON(`{"\u0061":"\u0041\/\u00E9"}`), true},
		{"JSON, element order", asJSON(`[1,2]`), asJSON(`[2,1]`), false},
		{"JSON, large numbers", asJSON(`9007199254740993`), asJSON(`9007199254740992`), false},
		{"JSON, 1.0", asJSON(`1.0`), asJSON(`1`), false},
		{"JSON, 1e2", asJSON(`1e2`), asJSON(`100`), false},
		{"JSON, a number and its text", asJSON(`1`), asJSON(`"1"`), false},
		{"JSON, null and absent", asJSON(`{"a":null}`), asJSON(`{}`), false},
		{"JSON, names twice", asJSON(`{"a":1,"a":2}`), asJSON(`{"a":2,"a":1}`), false},
		{"JSON, names twice and blanks", asJSON(`{"a":1,"a":2}`), asJSON(`{"a":1, "a":2}`), false},
		{"JSON, lone surrogates", asJSON(`"\ud800"`), asJSON(`"\ud801"`), false},
		{"JSON, invalid UTF-8", asJSON("\"\xff\""), asJSON("\"\xfe\""), false},
		{"JSON, invalid UTF-8 and its replacement", asJSON("\"\xff\""), asJSON("\"\ufffd\""), false},
		{"JSON, byte order mark", asJSON("\ufeff{}"), asJSON("{}"), false},
		{"JSON, trailing data", asJSON("{}{}"), asJSON("{}"), false},
		{"JSON, invalid, and blanks", asJSON("{a:1}"), asJSON("{a: 1}"), false},
		{"JSON, empty", asJSON(""), asJSON(" "), false},
		{"JSON, empty and null", asJSON(""), asJSON("null"), false},
		{"JSON, its hash is another body", asJSON("#" + strings.Repeat("a", 32)), asJSON(`"` + strings.Repeat("a", 600) + `"`), false},
		{"JSON as text", asJSON(`{}`), sent("text/plain", `{}`), false},
		{"JSON and nothing", asJSON(`{}`), sent("", `{}`), false},
		{"JSON by suffix", sent("application/vnd.api+json", `{"a":1,"b":2}`), sent("application/vnd.api+json", `{"b":2,"a":1}`), true},
		{"JSON by suffix and JSON", sent("application/vnd.api+json", `{}`), asJSON(`{}`), false},
		{"JSON with its charset", sent(j+"; charset=UTF-8", `{"a":1,"b":2}`), sent("Application/JSON;charset=utf-8", `{"b":2,"a":1}`), true},
		{"JSON with and without its charset", sent(j+"; charset=utf-8", `{}`), asJSON(`{}`), true},
		{"JSON with another charset", sent(j+"; charset=utf-16", `{}`), asJSON(`{}`), false},
		{"JSON with a version", sent(j+"; version=1", `{}`), sent(j+"; version=2", `{}`), false},
		{"JSON with parameters in another order", sent(j+"; a=1; b=2", `{}`), sent(j+`;b="2";A=1`, `{}`), true},
		{"JSON, packed", asked{"POST /", j, "gzip", "{} "}, asked{"POST /", j, "gzip", "{}"}, false},
		{"JSON, packed and not", asked{"POST /", j, "gzip", "{}"}, asJSON("{}"), false},
		{"JSON, packed in two ways", asked{"POST /", j, "gzip", "{}"}, asked{"POST /", j, "br", "{}"}, false},

		{"text", sent("text/plain", "a b"), sent("text/plain", "a  b"), false},
		{"text in another charset", sent("text/plain; charset=utf-8", "a"), sent("text/plain; charset=latin1", "a"), false},
		{"text, letters that do not matter", sent("text/plain; charset=utf-8", "a"), sent(`TEXT/PLAIN;Charset="utf-8"`, "a"), true},
		{"text, where a parameter's name ends", sent("text/plain; a=bc", "a"), sent("text/plain; ab=c", "a"), false},
		{"a form's order", sent("application/x-www-form-urlencoded", "a=1&b=2"), sent("application/x-www-form-urlencoded", "b=2&a=1"), false},
		{"type malformed", sent("application/json;;;=", "{}"), sent("application/json;;=", "{}"), false},
		{"type malformed, blanks", sent("json/", "{}"), sent("json/", "{ }"), false},
		{"extended parameters", sent("text/plain; a*=utf-16''x", "a"), sent("text/plain", "a"), false},

		{"multipart, another boundary", formWithBoundary("B"), formWithBoundary("--------WebKit7MA4YWxk"), true},
		{"multipart, no CRLF at the end", form("--B", "", "1", "--B--", ""), form("--B", "", "1", "--B--"), true},
		{"multipart, another subtype", form("--B", "", "1", "--B--"), sent("multipart/mixed; boundary=B", "--B\r\n\r\n1\r\n--B--"), false},
		{"multipart, another parameter", form("--B", "", "1", "--B--"), sent("multipart/form-data; boundary=B; type=a", "--B\r\n\r\n1\r\n--B--"), false},
		{"multipart, other content", form("--B", "", "1", "--B--"), form("--B", "", "2", "--B--"), false},
		{"multipart, parts in another order", form("--B", "", "1", "--B", "", "2", "--B--"), form("--B", "", "2", "--B", "", "1", "--B--"), false},
		{"multipart, one part or two", form("--B", "", "1", "--B", "", "2", "--B--"), form("--B", "", "1\r\n--C\r\n\r\n2", "--B--"), false},
		{"multipart, where content ends", form("--B", "", "1", "--B", "", "2", "--B--"), form("--B", "", "1\x002", "--B--"), false},
		{"multipart, header or content", form("--B", "A: b", "", "", "--B--"), form("--B", "", "A: b\r\n\r\n", "--B--"), false},
		{"multipart, fields in another order", form("--B", "A: 1", "C: 2", "", "", "--B--"), form("--B", "c:  2 ", "a:1", "", "", "--B--"), true},
		{"multipart, values in another order", form("--B", "A: 1", "A: 2", "", "", "--B--"), form("--B", "A: 2", "A: 1", "", "", "--B--"), false},
		{"multipart, another field", form("--B", "A: 1", "", "", "--B--"), form("--B", "B: 1", "", "", "--B--"), false},
		{"multipart, disposition in other words", disposition(`form-data; name="a"; filename="b c"`), disposition(`Form-Data;FileName="b c"; name=a`), true},
		{"multipart, another name", disposition(`form-data; name="a"`), disposition(`form-data; name="b"`), false},
		{"multipart, disposition malformed", disposition(`form-data; name="a`), disposition(`form-data;  name="a`), false},
		{"multipart, extended filename", disposition(`form-data; name=a; filename*=utf-16''x`), disposition(`form-data; name=a`), false},
		{"multipart, text in a part", form("--B", "X: a  b", "", "", "--B--"), form("--B", "X: a b", "", "", "--B--"), false},

		// Malformed or ambiguous: compared by bytes.
		{"multipart, a preamble", form("x", "--B", "", "1", "--B--"), form("y", "--B", "", "1", "--B--"), false},
		{"multipart, an empty preamble", form("", "--B", "", "1", "--B--"), form("--B", "", "1", "--B--"), false},
		{"multipart, an epilogue", form("--B", "", "1", "--B--", "x"), form("--B", "", "1", "--B--", "y"), false},
		{"multipart, no end", form("--B", "", "1", "--B"), form("--B", "", "1", "--B--"), false},
		{"multipart, no delimiter", form("", "1"), form("", "2"), false},
		{"multipart, no header's end", form("--B", "A: 1", "--B--"), form("--B", "A: 2", "--B--"), false},
		{"multipart, blanks behind the delimiter", form("--B ", "", "1", "--B--"), form("--B", "", "1", "--B--"), false},
		{"multipart, a boundary that goes on", form("--BB", "", "1", "--B--"), form("--B", "", "1", "--B--"), false},
		{"multipart, a boundary that goes on inside", form("--B", "", "1", "--BB", "--B--"), form("--B", "", "1", "--BC", "--B--"), false},
		{"multipart, a line that goes on", form("--B", "A: 1", " 2", "", "", "--B--"), form("--B", "A: 1", "  2", "", "", "--B--"), false},
		{"multipart, a line that goes on with a colon", form("--B", "A: 1", " c: 2", "", "", "--B--"), form("--B", "A: 1", " c:  2", "", "", "--B--"), false},
		{"multipart, a field without a colon", form("--B", "A", "", "", "--B--"), form("--B", "C", "", "", "--B--"), false},
		{"multipart, a field without a name", form("--B", ": 1", "", "", "--B--"), form("--B", ":  1", "", "", "--B--"), false},
		{"multipart, a line end of its own", form("--B", "A: 1\nC: 2", "", "", "--B--"), form("--B", "A:  1\nC: 2", "", "", "--B--"), false},
		{"multipart, no boundary", sent("multipart/form-data", "--B\r\n\r\n1\r\n--B--"), sent("multipart/form-data", "--B\r\n\r\n1\r\n--B--\r\n"), false},
		{"multipart, packed", asked{"POST /", "multipart/form-data; boundary=B", "gzip", "--B\r\n\r\n1\r\n--B--"}, asked{"POST /", "multipart/form-data; boundary=B", "gzip", "--B\r\n\r\n1\r\n--B--\r\n"}, false},
		{"multipart, none", form("--B--"), form("--B--", ""), true},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Regexp(t, `^(v1|v2:[0-9a-f]{64}):[0-9a-f]{64}$`, row.a.fingerprint())
			require.Equal(t, row.same, row.a.fingerprint() == row.b.fingerprint())
		})
	}
}

// TestFingerprint_ofCanonicalText: a body that is compared by bytes never equals one that
// is compared by structure.
func TestFingerprint_ofCanonicalText(t *testing.T) {
	long := `["` + strings.Repeat("a", maxInline) + `"]`
	text, ok := canonicalJSON([]byte(long))
	require.True(t, ok)
	require.False(t, json.Valid(text))
	require.NotEqual(t, asJSON(long).fingerprint(), asJSON(string(text)).fingerprint())
}

// TestFingerprint_version: records outlive the program that wrote them, so the
// fingerprints of version 1 never change.
func TestFingerprint_version(t *testing.T) {
	for _, row := range []struct {
		name string
		got  Fingerprint
		want Fingerprint
	}{
		{"nothing", to("POST /").fingerprint(), "v1:d24cec3800c8ce78598a220ef46be00d9eafc1441fdf1807aa3805cfafdb2cfc"},
		{"a query", to("POST /a%2Fb?c=d&a=b").fingerprint(), "v1:8cf4296d62c3572656f38881478c745053f15b7b14249ce119aee90da77d2ecf"},
		{"JSON", asJSON(`{"b":[1.0,"é"],"a":null}`).fingerprint(), "v1:c56f3b29c89eb5e455f3840c9edbb3b0030b2af610f2e9a76520f1905644ad4d"},
		{"long JSON", asJSON(`{"b":"` + strings.Repeat("b", 600) + `","a":1}`).fingerprint(), "v1:7d3b1bbfca6fc1ae04096285247a73fe155090cbbf2b3c2b2cb5148decd746b0"},
		{"multipart", disposition("form-data; name=a").fingerprint(), "v1:62d47cff12d13b60c75de94f8712e596e18f92400505f49046a7485fd446524b"},
		{"text", sent("text/plain; charset=utf-8", "a").fingerprint(), "v1:63a4696ebde775b4e226b9a86f445d1d54baa648c0e7653ebea2a06450d7e659"},
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

// TestFingerprint_twoContentTypes: a request with two Content-Types is compared byte by
// byte.
func TestFingerprint_twoContentTypes(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header["Content-Type"] = []string{"application/json", "text/plain"}
	require.NotEqual(t, RequestFingerprint(r, []byte("{}")), RequestFingerprint(r, []byte("{ }")))
}

// TestFingerprint_ofWriters: bodies of mime/multipart are compared part by part.
func TestFingerprint_ofWriters(t *testing.T) {
	write := func(content string) Fingerprint {
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		require.NoError(t, w.WriteField("amount", "1999"))
		part, err := w.CreateFormFile("receipt", `a "quoted" name.pdf`)
		require.NoError(t, err)
		_, _ = io.WriteString(part, content)
		part, err = w.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/json"}, "X-Other": {"1", "2"}})
		require.NoError(t, err)
		_, _ = io.WriteString(part, "{}")
		require.NoError(t, w.Close())
		return sent(w.FormDataContentType(), body.String()).fingerprint()
	}
	first, second := write("--\r\n\r\n--x"), write("--\r\n\r\n--x")
	require.Equal(t, first, second, "the boundaries differ")
	require.NotEqual(t, write("a"), write("b"))
}

// TestFingerprint_ofHostileMultiparts: time in proportion to the body.
func TestFingerprint_ofHostileMultiparts(t *testing.T) {
	const size = 256 << 10
	repeat := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for name, content := range map[string]string{
		"parts":             "--B" + repeat("\r\n\r\n\r\n--B") + "--",
		"parts with names":  "--B" + repeat("\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--B") + "--",
		"fields":            "--B\r\n" + repeat("A:\r\n") + "\r\n\r\n--B--",
		"fields backwards":  "--B\r\n" + repeat("C:\r\nB:\r\nA:\r\n") + "\r\n\r\n--B--",
		"a long field":      "--B\r\nContent-Type: " + repeat("a; ") + "\r\n\r\n\r\n--B--",
		"parameters":        "--B\r\nContent-Type: a/b" + repeat("; a=b") + "\r\n\r\n\r\n--B--",
		"nearly delimiters": "--B\r\n\r\n" + repeat("\r\n--") + "\r\n--B--",
		"line ends":         "--B" + repeat("\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			form(content).fingerprint()
			took := time.Since(begun)
			t.Logf("%d bytes: %v", len(content), took)
			require.Less(t, took, 10*time.Second)
		})
	}
	pairs := strings.Repeat("a=b&", size/4)
	begun := time.Now()
	to("POST /?" + pairs).fingerprint()
	require.Less(t, time.Since(begun), 10*time.Second)
}

// FuzzRequestFingerprint: no request makes it panic. The same request has the same fingerprint,
// also with another order of the query and another boundary. Another body is another request,
// unless both are the same JSON structure.
// A record of version 1, which ignored the order of the values of a query name, is compared as before.
func TestRequestFingerprint_recordsMadeBefore(t *testing.T) {
	of := func(query string) Fingerprint {
		return RequestFingerprint(httptest.NewRequest(http.MethodPost, "/?"+query, nil), nil)
	}
	decide := func(recorded, claimed Fingerprint) driver.Decision {
		_, reservation := driver.Decide(&driver.Record{Fingerprint: recorded, Status: driver.Completed, Expires: time.Unix(1, 0)}, &driver.Claim{Fingerprint: claimed}, time.Time{})
		return reservation.Decision
	}
	first, turned := of("a=1&a=2"), of("a=2&a=1")
	_, sum, _ := strings.Cut(string(first)[len(version2):], ":")
	before := Fingerprint(version + sum)
	require.Equal(t, driver.Done, decide(before, first))
	require.Equal(t, driver.Done, decide(before, turned), "as version 1")
	require.Equal(t, driver.Mismatch, decide(before, of("a=1&a=3")))
	require.Equal(t, driver.Mismatch, decide(first, turned))
	require.Equal(t, driver.Done, decide(of("a=1"), of("a=1")))
	require.NotContains(t, of("a=1&b=2"), version2, "only a repeated name needs version 2")
}

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

		m := mediaOf([]string{kind})
		if m.form != formMultipart {
			same := bytes.Equal(body, other)
			if a, errA := decodeStrictly(body); m.form == formJSON && errA == nil {
				b, errB := decodeStrictly(other)
				same = same || errB == nil && jsonEqual(a, b)
			}
			require.Equal(t, same, fp == RequestFingerprint(r, other))
			return
		}
		// A body that is compared part by part has the same parts for mime/multipart.
		sum, ok := sumOfParts(body, m.boundary)
		if !ok {
			return
		}
		again, ok := partsOf(body, m.boundary)
		if !ok {
			return // no parser accepts it
		}
		sum2, ok := sumOfParts(other, m.boundary)
		if others, read := partsOf(other, m.boundary); ok && read && bytes.Equal(sum, sum2) {
			require.Equal(t, again, others)
		}
	})
}

// partsOf returns the parts that mime/multipart finds in a body.
func partsOf(body []byte, boundary string) (list []string, ok bool) {
	reader := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := reader.NextRawPart()
		if err == io.EOF {
			return list, true
		}
		if err != nil {
			return nil, false
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return nil, false
		}
		list = append(list, fmt.Sprintf("%q %q %q", part.FormName(), part.FileName(), content))
	}
}

func jsonEqual(a, b any) bool {
	one, err1 := json.Marshal(a)
	two, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(one, two)
}

func BenchmarkRequestFingerprint(b *testing.B) {
	charge := `{"id":"ch_%06d","amount":1999,"currency":"eur","ok":true}`
	list := func(size int) []byte {
		var body bytes.Buffer
		body.WriteString(`{"charges":[`)
		for n := 0; body.Len() < size-70; n++ {
			if n > 0 {
				body.WriteByte(',')
			}
			fmt.Fprintf(&body, charge, n)
		}
		body.WriteString(`],"account":"acct_1"}`)
		return body.Bytes()
	}
	for _, row := range []struct {
		name string
		kind string
		body []byte
	}{
		{"JSON/64B", "application/json", []byte(fmt.Sprintf(charge, 1))},
		{"JSON/4KiB", "application/json", list(4 << 10)},
		{"JSON/1MiB", "application/json", list(1 << 20)},
		{"bytes/1MiB", "application/octet-stream", list(1 << 20)},
	} {
		b.Run(row.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodPost, "/charges", nil)
			r.Header.Set("Content-Type", row.kind)
			b.SetBytes(int64(len(row.body)))
			b.ReportAllocs()
			for b.Loop() {
				RequestFingerprint(r, row.body)
			}
		})
	}
}
