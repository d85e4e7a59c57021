package vendors

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/hostmatch"
)

// profile is what is known of an API.
type profile struct {
	hosts []string

	// key is the header of its keys, "" where it honours none, and keyLength how many
	// characters of them it takes; 0: 255.
	key       string
	keyLength int

	// verdict looks at what the status does not say. VerdictDefault: nothing.
	verdict func(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict

	// scope is that of a request to one of the hosts; nil: its host.
	scope func(*http.Request) string

	// attempt and silence bound an attempt and a read; 0: see resilienthttp.Policy.
	attempt, silence time.Duration
}

// transport is one for the profile's hosts and for more.
func (p profile) transport(more []string) *resilienthttp.Transport {
	known := slices.Concat(p.hosts, more)
	t := &resilienthttp.Transport{
		Policy: resilienthttp.Policy{AttemptTimeout: p.attempt, ReadTimeout: p.silence},
		Idempotency: resilienthttp.Idempotency{
			Header: p.key, MaxLength: p.keyLength, Hosts: known, Disabled: p.key == "",
		},
		Deadline: resilienthttp.Deadline{Disabled: true},
	}
	if p.verdict != nil {
		t.Policy.ClassifyBody = func(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
			if !hostmatch.Match(known, a.Request.URL) {
				return resilienthttp.VerdictDefault
			}
			return p.verdict(a, body)
		}
	}
	if p.scope != nil {
		t.Scope = func(r *http.Request) string {
			if !hostmatch.Match(known, r.URL) {
				return r.URL.Host
			}
			return p.scope(r)
		}
	}
	return t
}

// parsed is a body as a T. What is not there, or of another kind, stays zero.
func parsed[T any](body []byte) T {
	var v T
	_ = json.Unmarshal(body, &v)
	return v
}
