package peers

import (
	"cmp"
	"net/http"
	"net/url"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
)

// Ours is the name of the zero Transport, OursHedged of one with a zero Hedge. OursHedgedAt
// has a Hedge for clients with few calls: too few to measure a delay, and too few for a
// hedge by the default MaxRatio.
const (
	Ours         = "resilienthttp"
	OursHedged   = "resilienthttp-hedged"
	OursHedgedAt = "resilienthttp-hedged-50ms"
)

func ours() []Peer {
	return []Peer{
		{Name: Ours, Note: "the zero Transport", New: newOurs(func(*resilienthttp.Transport) {})},
		{Name: OursHedged, Note: "a zero Hedge: after the 95th percentile, at most 5 % of calls", New: newOurs(func(t *resilienthttp.Transport) {
			t.Hedge = &resilienthttp.Hedge{}
		})},
		{Name: OursHedgedAt, Note: "Hedge{Delay: 50ms, MaxRatio: 0.2}", New: newOurs(func(t *resilienthttp.Transport) {
			t.Hedge = &resilienthttp.Hedge{Delay: 50 * time.Millisecond, MaxRatio: 0.2}
		})},
	}
}

// Variants returns this library with mechanisms switched off. A mechanism has no reason where its
// variant is as good. They are not in All.
func Variants() []Peer {
	return []Peer{
		{Name: Ours + "-no-headers", Note: "RateLimit{IgnoreHeaders: true}", New: newOurs(ignoreHeaders)},
		{Name: Ours + "-static", Note: "Breaker{Static: true}", New: newOurs(fixBreaker)},
		{Name: Ours + "-both-off", Note: "RateLimit{IgnoreHeaders: true}, Breaker{Static: true}", New: newOurs(func(t *resilienthttp.Transport) {
			ignoreHeaders(t)
			fixBreaker(t)
		})},
	}
}

func ignoreHeaders(t *resilienthttp.Transport) {
	t.RateLimit = cmp.Or(t.RateLimit, &resilienthttp.RateLimit{})
	t.RateLimit.IgnoreHeaders = true
}

func fixBreaker(t *resilienthttp.Transport) {
	t.Breaker = cmp.Or(t.Breaker, &resilienthttp.Breaker{})
	t.Breaker.Static = true
}

// newOurs returns the constructor of a client. It changes the Transport after the scenario has configured it.
func newOurs(change func(*resilienthttp.Transport)) func(Setting) Client {
	return func(s Setting) Client {
		t := &resilienthttp.Transport{Base: s.Base}
		if s.Configure != nil {
			s.Configure(t)
		}
		change(t)
		return transport(withEndpoints(t, s.Endpoints))
	}
}

// withEndpoints returns a RoundTripper that uses all base URLs.
func withEndpoints(t *resilienthttp.Transport, urls []string) http.RoundTripper {
	if urls == nil {
		return t
	}
	list := &endpoints.Transport{Transport: t}
	for _, base := range urls {
		u, err := url.Parse(base)
		if err != nil {
			panic(err) // the endpoints are constants
		}
		list.Endpoints = append(list.Endpoints, endpoints.Endpoint{URL: u})
	}
	return list
}
