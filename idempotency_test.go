package resilienthttp_test

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

// keys are the keys that the Base has received, "<none>" where the field is missing.
func (b *scriptedBase) keys(fields ...string) (keys []string) {
	field := append(fields, "Idempotency-Key")[0]
	for _, call := range b.calls() {
		key := "<none>"
		if values, ok := call.Header[field]; ok {
			key = strings.Join(values, "|")
		}
		keys = append(keys, key)
	}
	return keys
}

// §4.8: which requests have which key, in which form. Each row makes two attempts with the same
// key. FuzzIdempotencyKey has the escapes of quoted ones.
func TestKeyIsSent(t *testing.T) {
	const random = "<random>"
	fixed := func(key string) func(*http.Request) string { return func(*http.Request) string { return key } }
	withKey := func(key string) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return resilienthttp.WithIdempotencyKey(ctx, key) }
	}
	for _, row := range []struct {
		name    string
		method  string
		config  resilienthttp.Idempotency
		context func(context.Context) context.Context
		header  http.Header
		want    string
	}{
		{name: "POST", method: "POST", want: random},
		{name: "PATCH", method: "PATCH", want: random},
		{name: "GET", method: "GET", want: "<none>"},
		{name: "PUT", method: "PUT", want: "<none>"},
		{name: "DELETE", method: "DELETE", want: "<none>"},
		{name: "Methods, among", method: "PUT", config: resilienthttp.Idempotency{Methods: []string{"PUT"}}, want: random},
		{name: "Methods, GET spelled by omission", config: resilienthttp.Idempotency{Methods: []string{"GET"}}, want: random},
		{name: "NewKey", method: "POST", config: resilienthttp.Idempotency{NewKey: fixed("order-7")}, want: "order-7"},
		{name: "inner spaces", method: "POST", config: resilienthttp.Idempotency{NewKey: fixed("a b  c")}, want: "a b  c"},
		{name: "all visible ASCII", method: "POST", config: resilienthttp.Idempotency{NewKey: fixed(visibleASCII())}, want: visibleASCII()},
		{name: "as long as the API takes", method: "POST", config: resilienthttp.Idempotency{MaxLength: 64, NewKey: fixed(strings.Repeat("k", 64))}, want: strings.Repeat("k", 64)},
		{name: "255 characters", method: "POST", config: resilienthttp.Idempotency{NewKey: fixed(strings.Repeat("k", 255))}, want: strings.Repeat("k", 255)},
		{name: "context", method: "POST", context: withKey("comp1:invoice:001"), want: "comp1:invoice:001"},
		{name: "context, any method: PUT", method: "PUT", context: withKey("k"), want: "k"},
		{name: "context, any method: GET", method: "GET", context: withKey("k"), want: "k"},
		{name: "context before NewKey", method: "POST", config: resilienthttp.Idempotency{NewKey: fixed("new")}, context: withKey("k"), want: "k"},
		{name: "context although Off", method: "POST", config: resilienthttp.Idempotency{Disabled: true}, context: withKey("k"), want: "k"},
		{name: "empty context key is none", method: "POST", context: withKey(""), want: random},
		{name: "empty context key takes an outer one back", method: "POST", context: func(ctx context.Context) context.Context {
			return withKey("")(withKey("outer")(ctx))
		}, want: random},
		{name: "innermost context key", method: "POST", context: func(ctx context.Context) context.Context {
			return withKey("inner")(withKey("outer")(ctx))
		}, want: "inner"},
		{name: "header", method: "POST", header: http.Header{"Idempotency-Key": {"mine"}}, want: "mine"},
		{name: "header before context", method: "POST", header: http.Header{"Idempotency-Key": {"mine"}}, context: withKey("k"), want: "mine"},
		{name: "header before NewKey", method: "POST", header: http.Header{"Idempotency-Key": {"mine"}}, config: resilienthttp.Idempotency{NewKey: fixed("new")}, want: "mine"},
		{name: "header although Off", method: "POST", header: http.Header{"Idempotency-Key": {"mine"}}, config: resilienthttp.Idempotency{Disabled: true}, want: "mine"},
		{name: "header is sent as it is", method: "POST", header: http.Header{"Idempotency-Key": {"mine"}}, config: resilienthttp.Idempotency{Quoted: true}, want: "mine"},
		{name: "header of any length", method: "POST", header: http.Header{"Idempotency-Key": {strings.Repeat("k", 300)}}, want: strings.Repeat("k", 300)},
		{name: "PayPal", method: "POST", config: resilienthttp.Idempotency{Header: "PayPal-Request-Id", NewKey: fixed("k")}, want: "k"},
		{name: "X-Idempotency-Key", method: "POST", config: resilienthttp.Idempotency{Header: "X-Idempotency-Key", NewKey: fixed("k")}, want: "k"},
		{name: "lower-case name", method: "POST", config: resilienthttp.Idempotency{Header: "paypal-request-id"}, header: http.Header{"Paypal-Request-Id": {"mine"}}, want: "mine"},
		{name: "quoted", method: "POST", config: resilienthttp.Idempotency{Quoted: true, NewKey: fixed("order-7")}, want: `"order-7"`},
		{name: "quoted, from the context", method: "POST", config: resilienthttp.Idempotency{Quoted: true}, context: withKey("order-7"), want: `"order-7"`},
		{name: "quoted already", method: "POST", config: resilienthttp.Idempotency{Quoted: true, NewKey: fixed(`"order-7"`)}, want: `"order-7"`},
		{name: "not quoted", method: "POST", config: resilienthttp.Idempotency{NewKey: fixed(`a"b\c`)}, want: `a"b\c`},
	} {
		t.Run("§4.8 "+row.name, func(t *testing.T) {
			ledger := script(status(429))
			transport := bareTransport(ledger, 3)
			transport.Idempotency = row.config
			ctx := applied(t.Context(), row.context)
			req := newCall(ctx, t, "GET", "body")
			req.Method = row.method
			if row.header != nil {
				req.Header = row.header
			}
			before := req.Header.Clone()
			require.Len(t, tripped(t, transport, req), 3)
			require.Equal(t, before, req.Header, "§4.2: the caller's header is left alone")
			keys := ledger.keys(http.CanonicalHeaderKey(cmp.Or(row.config.Header, "Idempotency-Key")))
			require.Len(t, keys, 3)
			for _, key := range keys {
				require.Equal(t, keys[0], key, "one key per call")
			}
			if row.want != random {
				require.Equal(t, row.want, keys[0])
				return
			}
			id, err := uuid.Parse(keys[0])
			require.NoError(t, err)
			require.Equal(t, uuid.Version(4), id.Version())
			require.Len(t, keys[0], 36)
		})
	}
	t.Run("§4.8 quoted random", func(t *testing.T) {
		ledger := script(status(200))
		transport := bareTransport(ledger, 1)
		transport.Idempotency.Quoted = true
		tripped(t, transport, newCall(t.Context(), t, "POST", "body"))
		require.Len(t, ledger.keys()[0], 38)
		require.Equal(t, ledger.keys()[0], `"`+strings.Trim(ledger.keys()[0], `"`)+`"`)
	})
	t.Run("§4.8 a caller's key under a name of another case", func(t *testing.T) {
		for _, row := range []struct{ header, sent http.Header }{
			{http.Header{"idempotency-key": {"mine"}}, http.Header{"idempotency-key": {"mine"}}},
			{http.Header{"Idempotency-Key": {""}, "idempotency-key": {"mine"}}, http.Header{"idempotency-key": {"mine"}}},
			{http.Header{"idempotency-key": {""}}, http.Header{"Idempotency-Key": {"made"}}},
		} {
			base := script(status(200))
			transport := &resilienthttp.Transport{Base: base, Idempotency: resilienthttp.Idempotency{NewKey: fixed("made")}}
			req := newCall(t.Context(), t, "POST", "body")
			req.Header = row.header.Clone()
			tripped(t, transport, req)
			require.Equal(t, row.sent, base.sent[0].Header, "the caller's key is not replaced, and there is one field")
			require.Equal(t, row.header, req.Header)
		}
	})
	t.Run("§4.8 the request is repeatable with it", func(t *testing.T) {
		transport := bareTransport(puppetStatus(500), 2)
		transport.Idempotency.Disabled = true
		req := newCall(t.Context(), t, "POST", "body")
		req.Header = http.Header{"IDEMPOTENCY-KEY": {"mine"}}
		require.Len(t, tripped(t, transport, req), 2)
	})
	t.Run("NewKey gets the request, once a call", func(t *testing.T) {
		var asked atomic.Int64
		ledger := script(status(500))
		transport := bareTransport(ledger, 3)
		transport.Idempotency.NewKey = func(req *http.Request) string {
			asked.Add(1)
			return "for " + req.URL.Path
		}
		tripped(t, transport, newCall(t.Context(), t, "POST", "body"))
		require.Equal(t, []string{"for /", "for /", "for /"}, ledger.keys())
		require.EqualValues(t, 1, asked.Load())
	})
	t.Run("Methods are read once", func(t *testing.T) {
		ledger := script(status(200))
		methods := []string{"POST"}
		transport := bareTransport(ledger, 1)
		transport.Idempotency.Methods = methods
		tripped(t, transport, newCall(t.Context(), t, "POST", "body"))
		methods[0] = "GET"
		tripped(t, transport, newCall(t.Context(), t, "POST", "body"))
		require.NotContains(t, ledger.keys(), "<none>")
	})
}

func visibleASCII() string {
	var b strings.Builder
	for c := byte('!'); c <= '~'; c++ {
		b.WriteByte(c)
	}
	return b.String()
}

// TestKeyIsRandom is §4.8: 122 random bits, new for each call.
func TestKeyIsRandom(t *testing.T) {
	const calls = 100_000
	seen := make(map[uuid.UUID]bool, calls)
	var ones [128]int
	transport := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
		id, err := uuid.Parse(req.Header.Get("Idempotency-Key"))
		if err != nil {
			return nil, err
		}
		seen[id] = true
		for bit := range ones {
			ones[bit] += int(id[bit/8] >> (7 - bit%8) & 1)
		}
		return response(req, http.StatusOK, "body"), nil
	}), 1)
	for range calls {
		if err := discard(transport, newCall(t.Context(), t, http.MethodPost, "body")); err != nil {
			require.NoError(t, err)
		}
	}
	require.Len(t, seen, calls)
	fixed := 0
	for bit, n := range ones {
		if n == 0 || n == calls {
			fixed++
			continue
		}
		// Ten standard deviations: 3e-23.
		require.InDelta(t, calls/2, n, 1600, "§4.8: bit %d", bit)
	}
	require.Equal(t, 6, fixed, "§4.8: version and variant")
}

// §4.8: an invalid key is an error before anything is sent. The error does not contain the key. idempotencykey.TestCheck has
// the invalid ones.
func TestInvalidKeys(t *testing.T) {
	for _, row := range []struct {
		name, key, text string
	}{
		{"newline", "a\nb", ""},
		{"NUL", "a\x00b", ""},
		{"256 characters", strings.Repeat("k", 256), "more than 255"},
		{"65 characters, of 64", strings.Repeat("k", 65), "longer than 64"},
		{"trailing space", "secret ", ""},
	} {
		for _, source := range []string{"context", "NewKey"} {
			t.Run("§4.8 "+row.name+", "+source, func(t *testing.T) {
				base := script(status(http.StatusOK))
				transport := bareTransport(base, 3)
				done := 0
				transport.Trace = &resilienthttp.Trace{CallDone: func(*resilienthttp.Call) { done++ }}
				if strings.HasSuffix(row.name, "of 64") {
					transport.Idempotency.MaxLength = 64
				}
				ctx := t.Context()
				if source == "context" {
					ctx = resilienthttp.WithIdempotencyKey(ctx, row.key)
				} else {
					transport.Idempotency.NewKey = func(*http.Request) string { return row.key }
				}
				req := newCall(ctx, t, http.MethodPost, "")
				body := trackBody(req, "body")
				resp, err := transport.RoundTrip(req)
				require.Nil(t, resp)
				require.Empty(t, asError(t, err).Attempts)
				require.Empty(t, base.sent, "nothing sent")
				require.Zero(t, done)
				body.requireClosedOnce(t, 1) // §4.2
				require.ErrorContains(t, err, "idempotency key")
				require.ErrorContains(t, err, row.text)
				if len(row.key) > 2 {
					require.NotContains(t, err.Error(), row.key, "§4.7")
				}
				require.NotContains(t, err.Error(), "\n")
				require.Less(t, len(err.Error()), 200)
			})
		}
	}
}

// §4.8, V2: a host that is not in Hosts gets no key, except one that the caller has set, and a
// POST to it is not retried.
func TestKeyForHosts(t *testing.T) {
	for _, row := range []struct {
		name, url, context, header string
		want                       string // "": any, of all attempts
		attempts                   int
	}{
		{"known", "http://api.test/", "", "", "", 3},
		{"known, by the context", "http://a.b.more.test:8080/", "mine", "", "mine", 3},
		{"another", "http://evil.test/", "", "", "<none>", 1},
		{"another, by the context", "http://evil.test/", "mine", "", "<none>", 1},
		{"another, by the header", "http://evil.test/", "", "mine", "mine", 3},
		{"a name that ends so", "http://evilapi.test/", "", "", "<none>", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			ledger := script(status(500))
			transport := bareTransport(ledger, 3)
			transport.Idempotency.Hosts = []string{"api.test", "*.more.test"}
			ctx := resilienthttp.WithIdempotencyKey(t.Context(), row.context)
			req := newRequest(t, http.MethodPost, row.url, "body").WithContext(ctx)
			if row.header != "" {
				req.Header.Set("Idempotency-Key", row.header)
			}
			require.Len(t, tripped(t, transport, req), row.attempts)
			require.Len(t, ledger.keys(), row.attempts)
			for _, key := range ledger.keys() {
				if row.want == "" {
					require.NoError(t, uuid.Validate(key))
				} else {
					require.Equal(t, row.want, key)
				}
			}
		})
	}
}

// §4.8: http.Client follows a redirect with the same key to the same origin, with another key to
// another origin, and without a generated key if the request becomes a GET.
func TestKeyOverRedirects(t *testing.T) {
	// leads redirects all requests, and leadsOn only those for "/".
	leads := func(code int, location string) http.Handler { return faulttest.Redirect(code, location) }
	leadsOn := func(code int, location string) http.Handler {
		return faulttest.Script{{Route: "/{$}", Handler: leads(code, location)}}
	}
	chain := faulttest.Script{{Route: "/{$}", Handler: leads(307, "/b")}, {Route: "/b", Handler: leads(308, "/c")}}
	for _, row := range []struct {
		name   string
		first  http.Handler // of api.test
		config resilienthttp.Idempotency
		key    string // of the context
		header string
		want   string // the requests; the keys are a, b and so on, and - is none
	}{
		{name: "307, relative", first: leadsOn(307, "/b"), want: "POST api.test/ a, POST api.test/b a"},
		{name: "308, absolute", first: leadsOn(308, "http://api.test/b"), want: "POST api.test/ a, POST api.test/b a"},
		{name: "the default port spelled out, and the host in capitals", first: leadsOn(307, "http://API.test:80/b"), want: "POST api.test/ a, POST api.test/b a"},
		{name: "a chain", first: chain, want: "POST api.test/ a, POST api.test/b a, POST api.test/c a"},
		{name: "another origin", first: leads(307, "http://other.test/"), want: "POST api.test/ a, POST other.test/ b"},
		{name: "another port", first: leadsOn(307, "http://api.test:8080/b"), want: "POST api.test/ a, POST api.test/b b"},
		{name: "away and back", first: leadsOn(307, "http://back.test/"), want: "POST api.test/ a, POST back.test/ b, POST api.test/b c"},
		{name: "303 becomes a GET", first: leadsOn(303, "/b"), want: "POST api.test/ a, GET api.test/b -"},
		{name: "303 becomes a GET, with keys for GET", config: resilienthttp.Idempotency{Methods: []string{"GET", "POST"}}, first: leadsOn(303, "/b"), want: "POST api.test/ a, GET api.test/b b"},
		{name: "the caller's own key goes to its origin", key: "mine", first: leadsOn(307, "/b"), want: "POST api.test/ a, POST api.test/b a"},
		{name: "the caller's own key goes to no other origin", key: "mine", first: leads(307, "http://other.test/"), want: "POST api.test/ a, POST other.test/ b"},
		{name: "the caller's own header goes to no other origin", header: "mine", first: leads(307, "http://other.test/"), want: "POST api.test/ a, POST other.test/ b"},
		{name: "the caller's own header comes back to its origin", header: "mine", first: leadsOn(307, "http://back.test/"), want: "POST api.test/ a, POST back.test/ b, POST api.test/b a"},
		{name: "the caller's own header is not on a GET to another origin", header: "mine", first: leads(303, "http://other.test/"), want: "POST api.test/ a, GET other.test/ -"},
		{name: "quoted once", config: resilienthttp.Idempotency{Quoted: true}, first: leadsOn(307, "/b"), want: "POST api.test/ a, POST api.test/b a"},
		{name: "NewKey is not asked again", config: resilienthttp.Idempotency{NewKey: counting()}, first: leadsOn(307, "/b"), want: "POST api.test/ a, POST api.test/b a"},
	} {
		bubble.Run(t, "§4.8 "+row.name, func(t *testing.T) {
			n := memhttp.NewNetwork(t)
			var seen faulttest.Log
			n.Serve(t, "api.test", seen.Record(row.first))
			n.Serve(t, "other.test", seen.Record(nil))
			n.Serve(t, "back.test", seen.Record(leads(307, "http://api.test/b")))
			transport := bareTransport(n.Transport(), 3)
			transport.Idempotency = row.config
			client := &http.Client{Transport: transport}
			req := newCall(resilienthttp.WithIdempotencyKey(t.Context(), row.key), t, http.MethodPost, "charge")
			if row.header != "" {
				req.Header.Set("Idempotency-Key", row.header)
			}
			resp := do(t, client, req)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 200, resp.StatusCode)
			var got []string
			letters := map[string]string{"": "-"}
			for _, q := range seen.Requests() {
				if letters[q.Key] == "" {
					letters[q.Key] = string(rune('a' + len(letters) - 1))
				}
				host, _, _ := strings.Cut(strings.ToLower(q.Host), ":")
				got = append(got, q.Method+" "+host+q.URI+" "+letters[q.Key])
				if q.Method == http.MethodPost {
					require.Equal(t, "charge", string(q.Body))
				}
			}
			require.Equal(t, row.want, strings.Join(got, ", "), "%s", seen.Transcript())
			if row.key+row.header != "" {
				require.Equal(t, "mine", seen.Requests()[0].Key)
			}
		})
	}
	bubble.Run(t, "§4.8 over attempts on both sides of the redirect", func(t *testing.T) {
		srv := &faulttest.Server{InMemory: true, Host: "api.test", Script: faulttest.Script{
			{Route: "/{$}", Handler: faulttest.Sequence(faulttest.Status(500), faulttest.Status(500), leads(308, "/b"))},
			{Route: "/b", Handler: faulttest.Sequence(faulttest.Status(500), faulttest.Status(500), faulttest.Status(201))},
		}}
		srv.Start(t)
		client := &http.Client{Transport: bareTransport(srv.Transport(), 3)}
		resp := do(t, client, newCall(t.Context(), t, http.MethodPost, "charge"))
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 201, resp.StatusCode)
		srv.AssertAttempts(t, 6)
		srv.AssertKeys(t, 1)
		srv.AssertBodies(t)
	})
}

// §4.8: what the caller has said about the call in the header of its request goes to no other origin. A repetition of the call
// has the same key there.
func TestRedirect_headersOfTheCaller(t *testing.T) {
	own := http.Header{
		"Idempotency-Key": {"mine"}, "X-Request-Deadline": {"2001-01-01T00:00:00.000Z"}, "X-Request-Timeout-Ms": {"5000"},
		"x-request-priority": {"critical"}, "X-Retry-Owner": {"caller"}, "X-Other": {"stays"},
	}
	for _, row := range []struct {
		name, location string
		away           bool
	}{
		{"the same origin", "http://api.test/b", false},
		{"another origin", "http://other.test/b", true},
		{"another origin, and another path there", "http://other.test/a", true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			n := memhttp.NewNetwork(t)
			var seen faulttest.Log
			n.Serve(t, "api.test", seen.Record(faulttest.Script{{Route: "/charges", Handler: faulttest.Redirect(307, row.location)}}))
			n.Serve(t, "other.test", seen.Record(faulttest.Script{{Route: "/a", Handler: faulttest.Redirect(308, "/b")}}))
			client := &http.Client{Transport: &resilienthttp.Transport{Base: n.Transport()}}
			for range 2 {
				req := newRequest(t, http.MethodPost, "http://api.test/charges", "charge")
				req.Header = own.Clone()
				require.NoError(t, do(t, client, req).Body.Close())
			}
			requests := seen.Requests()
			last, before := requests[len(requests)-1], requests[len(requests)/2-1]
			require.Equal(t, before.Key, last.Key, "of the repetition")
			require.Equal(t, !row.away, last.Key == "mine")
			require.NotEmpty(t, last.Key)
			for _, name := range []string{"X-Request-Deadline", "X-Request-Timeout-Ms", "X-Request-Priority", "X-Retry-Owner"} {
				require.Equal(t, row.away, last.Header.Get(name) == "", name)
			}
			require.Equal(t, "stays", last.Header.Get("X-Other"))
		})
	}
}

// §4.8: the default port of https counts, and http and https are two origins.
func TestKeyOverTLSRedirects(t *testing.T) {
	for location, same := range map[string]bool{
		"https://api.test:443/b": true, "https://api.test:80/b": false, "http://api.test:443/b": false, "ftp://api.test/b": false,
	} {
		base := script(status(308, "Location", location), status(200))
		req := newCall(t.Context(), t, http.MethodPost, "charge")
		req.URL.Scheme = "https"
		resp := do(t, &http.Client{Transport: bareTransport(base, 1)}, req)
		require.NoError(t, resp.Body.Close())
		require.Len(t, base.keys(), 2)
		require.Equal(t, same, base.keys()[0] == base.keys()[1], location)
	}
}

func counting() func(*http.Request) string {
	var n atomic.Int64
	return func(*http.Request) string { return strings.Repeat("k", int(n.Add(1))) }
}

// §4.8: Request.Response may be any response, also an incomplete one.
func TestKeyOfAnotherResponse(t *testing.T) {
	origin := newCall(t.Context(), t, http.MethodPost, "body")
	origin.Header.Set("Idempotency-Key", "before")
	for _, row := range []struct {
		name string
		resp *http.Response
	}{
		{"no request", &http.Response{StatusCode: http.StatusTemporaryRedirect}},
		{"no URL", &http.Response{StatusCode: http.StatusTemporaryRedirect, Request: &http.Request{Method: http.MethodPost}}},
		{"not a redirect that repeats", &http.Response{StatusCode: http.StatusFound, Request: origin}},
		{"no key", &http.Response{StatusCode: http.StatusTemporaryRedirect, Request: newCall(t.Context(), t, http.MethodPost, "body")}},
		{"another method", &http.Response{StatusCode: http.StatusTemporaryRedirect, Request: newCall(t.Context(), t, http.MethodPatch, "body")}},
	} {
		t.Run("§4.8 "+row.name, func(t *testing.T) {
			ledger := script(status(200))
			req := newCall(t.Context(), t, http.MethodPost, "body")
			req.Response = row.resp
			tripped(t, bareTransport(ledger, 1), req)
			require.NoError(t, uuid.Validate(ledger.keys()[0]))
		})
	}
}

// §4.8: a program that sends Response.Request again, after a redirect, makes a new operation with
// its own key.
func TestKeyOfResentRequest(t *testing.T) {
	base := script(status(307, "Location", "/b"), status(200))
	client := &http.Client{Transport: bareTransport(base, 1)}
	resp := do(t, client, newCall(t.Context(), t, http.MethodPost, "one"))
	readAll(t, resp)
	for _, ctx := range []context.Context{resp.Request.Context(), t.Context()} {
		again := resp.Request.Clone(ctx)
		again.Body = io.NopCloser(strings.NewReader("two"))
		resp := do(t, client, again)
		readAll(t, resp)
	}
	keys := map[string]bool{}
	for i, call := range base.calls() {
		key := call.Header.Get("Idempotency-Key")
		require.NoError(t, uuid.Validate(key))
		require.Equal(t, i == 1, keys[key], "only the redirect repeats the key")
		keys[key] = true
	}
	require.Len(t, keys, 3)
}

// §4.8: the key in the context is the outer call's. A call of Base, for example to fetch a token,
// gets another.
func TestKeyOfInnerTransport(t *testing.T) {
	tokens, charges := script(status(200)), script(status(200))
	inside := bareTransport(tokens, 1)
	outer := bareTransport(puppet(func(req *http.Request) (*http.Response, error) {
		token, err := inside.RoundTrip(newCall(req.Context(), t, http.MethodPost, "grant"))
		if err != nil {
			return nil, err
		}
		_ = token.Body.Close()
		return charges.RoundTrip(req)
	}), 1)
	tripped(t, outer, newCall(resilienthttp.WithIdempotencyKey(t.Context(), "invoice-1"), t, http.MethodPost, "charge"))
	require.Equal(t, []string{"invoice-1"}, charges.keys())
	require.NoError(t, uuid.Validate(tokens.keys()[0]))
}

// A key is either sent in a form that a server can parse, or nothing is sent.
func FuzzIdempotencyKey(f *testing.F) {
	for _, key := range []string{"", "k", " k", `"k"`, `"a"b"`, `"a\"`, `a"b\c`, `"a\"b\\"`, `"a" and "b"`, `"a\b"`, `"`, "a\nb", "é", strings.Repeat("k", 256), "comp1:invoice:001"} {
		f.Add(key, false)
		f.Add(key, true)
	}
	f.Fuzz(func(t *testing.T, key string, quoted bool) {
		ledger := script(status(500), status(200))
		transport := bareTransport(ledger, 2)
		transport.Idempotency.Quoted = quoted
		attempts := tripped(t, transport, newCall(resilienthttp.WithIdempotencyKey(t.Context(), key), t, http.MethodPost, "body"))
		valid := len(key) <= 255 && strings.Trim(key, " ") == key
		for _, c := range []byte(key) {
			valid = valid && c >= ' ' && c <= '~'
		}
		if text, rest, ok := readString(key); ok && (rest == "" || rest[0] == ';') && strings.Trim(text, " ") == "" {
			valid = false // a server that reads the string, and perhaps parameters behind it, finds no key
		}
		if !valid {
			require.Empty(t, attempts)
			require.Empty(t, ledger.keys())
			return
		}
		require.Len(t, attempts, 2)
		require.Len(t, ledger.keys(), 2)
		require.Equal(t, ledger.keys()[0], ledger.keys()[1])
		sent := ledger.keys()[0]
		switch {
		case key == "":
			require.NoError(t, uuid.Validate(strings.Trim(sent, `"`)))
		case !quoted:
			require.Equal(t, key, sent)
		default:
			read, rest, ok := readString(sent)
			require.True(t, ok && rest == "", "a structured-field string: %s", sent)
			asItIs, rest, ok := readString(key)
			if ok && rest == "" {
				require.Equal(t, asItIs, read)
			} else {
				require.Equal(t, key, read)
			}
		}
	})
}

// readString reads the structured-field string that s begins with (RFC 8941
// section 4.2.5), character by character, and returns what is behind it.
func readString(s string) (text, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", s, false
	}
	var b strings.Builder
	for n := 1; n < len(s); n++ {
		switch c := s[n]; c {
		case '\\':
			if n++; n == len(s) || s[n] != '"' && s[n] != '\\' {
				return "", s, false
			}
			b.WriteByte(s[n])
		case '"':
			return b.String(), s[n+1:], true
		default:
			if c < ' ' || c > '~' {
				return "", s, false
			}
			b.WriteByte(c)
		}
	}
	return "", s, false
}
