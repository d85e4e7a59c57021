package fuzz_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
)

// settings are those of the client. A zero field is the default.
type settings struct {
	base           string // of the kinds below
	noKeepAlives   bool
	endpoints      bool // over all hosts
	ownRedirects   bool // http.Client does not follow redirects
	maxAttempts    int
	attemptTimeout time.Duration
	classify       int // a status that is a success
	hedge          time.Duration
	breaker        *resilienthttp.Breaker
	budget         *resilienthttp.Budget
	limit          rate.Limit
	maxInFlight    int
	maxWait        time.Duration
	ignoreHeaders  bool
	keyHeader      string
	keyMethods     []string
}

// The kinds of Base.
const (
	baseNative      = "net/http"
	baseConnections = "Connections"
	basePassing     = "passing" // a RoundTripper around net/http's
	baseHiding      = "hiding"  // one that hides the connections
)

func (d draw) settings() settings {
	s := settings{
		base:         pick(d, baseNative, baseNative, baseConnections, baseConnections, basePassing, baseHiding),
		noKeepAlives: d.in(6), endpoints: d.in(2), ownRedirects: d.in(4),
		maxAttempts: pick(d, 0, 0, 0, 1, 2, 3), attemptTimeout: pick(d, 0, 0, -1, 200*time.Millisecond, time.Second),
	}
	d.in(5) // was drawn for a setting that is gone: without it, the seeds of found would draw other scripts
	s.limit, s.maxInFlight = pick[rate.Limit](d, 0, 0, 0, 5), pick(d, 0, 0, 0, 1, 2)
	s.maxWait, s.ignoreHeaders = pick(d, 0, 0, 0, -1, time.Second), d.in(4)
	s.keyHeader = pick(d, "", "", "X-Idempotency-Key")
	if d.in(3) {
		s.hedge = pick(d, time.Millisecond, 30*time.Millisecond)
	}
	if d.in(3) {
		s.breaker = pick(d, &resilienthttp.Breaker{FailureRatio: -1}, &resilienthttp.Breaker{MinRequests: 2, FailureRatio: .5, Static: d.in(2)})
	}
	if d.in(3) {
		s.budget = pick(d, &resilienthttp.Budget{Ratio: -1}, &resilienthttp.Budget{Burst: -1}, &resilienthttp.Budget{Burst: 1, Static: true})
	}
	if d.in(4) {
		s.classify = pick(d, 500, 503, 409)
	}
	if d.in(3) {
		s.keyMethods = []string{http.MethodPost, http.MethodPut, http.MethodDelete}
	}
	return s
}

// roundTripper is a RoundTripper that is no Transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// newBase returns the Base, and net/http's Transport below it.
func (s *script) newBase(srv *servers) (http.RoundTripper, *http.Transport) {
	native := srv.net.Transport()
	native.DialContext = srv.dial
	native.DisableKeepAlives = s.settings.noKeepAlives
	native.Protocols = new(http.Protocols)
	native.Protocols.SetHTTP1(!s.http2)
	native.Protocols.SetUnencryptedHTTP2(s.http2)
	switch s.settings.base {
	case baseConnections:
		return &resilienthttp.Connections{Transport: native}, native
	case basePassing:
		return roundTripper(native.RoundTrip), native
	case baseHiding:
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			ctx, cancel := context.WithCancel(context.Background())
			context.AfterFunc(req.Context(), cancel)
			return native.RoundTrip(req.WithContext(ctx))
		}), native
	}
	return native, native
}

// newClient returns the client, and a function that closes its idle connections.
func (s *script) newClient(srv *servers) (client *http.Client, closeIdle func()) {
	set := &s.settings
	base, native := s.newBase(srv)
	tr := &resilienthttp.Transport{
		Base: base, Breaker: set.breaker, Budget: set.budget,
		Policy: resilienthttp.Policy{MaxAttempts: set.maxAttempts, AttemptTimeout: set.attemptTimeout},
		RateLimit: &resilienthttp.RateLimit{
			Limit: set.limit, MaxInFlight: set.maxInFlight, MaxWait: set.maxWait, IgnoreHeaders: set.ignoreHeaders,
		},
		Idempotency: resilienthttp.Idempotency{Header: set.keyHeader, Methods: set.keyMethods, NewKey: func(req *http.Request) string {
			if strings.Contains(req.URL.Path, "keyless") {
				return ""
			}
			return "key of " + req.Header.Get("Call") + " " + time.Now().String()
		}},
	}
	if set.hedge > 0 {
		tr.Hedge = &resilienthttp.Hedge{Delay: set.hedge, MaxRatio: -1}
	}
	if set.classify != 0 {
		tr.Policy.Classify = func(a *resilienthttp.Attempt) resilienthttp.Verdict {
			if a.Response != nil && a.Response.StatusCode == set.classify {
				return resilienthttp.VerdictSuccess
			}
			return resilienthttp.VerdictDefault
		}
	}
	client = &http.Client{Transport: tr}
	if set.endpoints {
		list := &endpoints.Transport{Transport: tr, SharedKeys: s.sharedKeys}
		for _, host := range hosts {
			list.Endpoints = append(list.Endpoints, endpoints.Endpoint{Name: host, URL: &url.URL{Scheme: "http", Host: host}})
		}
		client.Transport = list
	}
	if set.ownRedirects {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return client, func() {
		client.CloseIdleConnections()
		native.CloseIdleConnections()
	}
}
