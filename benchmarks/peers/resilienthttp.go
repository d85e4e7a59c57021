package peers

import (
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
		{Name: Ours, Note: "the zero Transport", New: func(s Setting) Client {
			return newOurs(s, nil)
		}},
		{Name: OursHedged, Note: "a zero Hedge: after the 95th percentile, at most 5 % of calls", New: func(s Setting) Client {
			return newOurs(s, &resilienthttp.Hedge{})
		}},
		{Name: OursHedgedAt, Note: "Hedge{Delay: 50ms, MaxRatio: 0.2}", New: func(s Setting) Client {
			return newOurs(s, &resilienthttp.Hedge{Delay: 50 * time.Millisecond, MaxRatio: 0.2})
		}},
	}
}

func newOurs(s Setting, hedge *resilienthttp.Hedge) Client {
	t := &resilienthttp.Transport{Base: s.Base, Hedge: hedge}
	if s.Configure != nil {
		s.Configure(t)
	}
	if s.Endpoints == nil {
		return transport(t)
	}
	list := &endpoints.Transport{Transport: t}
	for _, base := range s.Endpoints {
		u, err := url.Parse(base)
		if err != nil {
			panic(err) // the endpoints are constants
		}
		list.Endpoints = append(list.Endpoints, endpoints.Endpoint{URL: u})
	}
	return transport(list)
}
