package vendors

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/hostmatch"
)

// profile describes an API.
type profile struct {
	hosts []string

	// key is the header of idempotency keys, "" if the API does not honour them. keyLength is
	// their maximum length; zero means 255.
	key       string
	keyLength int

	// verdict classifies a response by its body or header; VerdictDefault means by its status.
	verdict func(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict

	// scope returns the scope of a request to one of the hosts. Nil means the host.
	scope func(*http.Request) string

	// quotaKey is RateLimit.Key for requests to one of the hosts. nil means one key.
	quotaKey func(*http.Request) string

	// cost is RateLimit.Cost for requests to one of the hosts. nil means that it is unknown.
	cost func(*http.Request) float64

	// attemptTimeout and readTimeout are those of resilienthttp.Policy.
	attemptTimeout, readTimeout time.Duration

	// event is Stream.Classify. It has no host. nil means no Stream.
	event func(name string, data []byte) resilienthttp.Verdict

	// harmless are the last elements of the paths to which a POST may be done twice.
	harmless []string
}

// transport returns a Transport for the profile's hosts and additional ones.
func (p profile) transport(hosts []string) *resilienthttp.Transport {
	known := slices.Concat(p.hosts, hosts)
	t := &resilienthttp.Transport{
		Policy: resilienthttp.Policy{AttemptTimeout: p.attemptTimeout, ReadTimeout: p.readTimeout},
		Idempotency: resilienthttp.Idempotency{
			Header: p.key, MaxLength: p.keyLength, Hosts: known, Disabled: p.key == "",
		},
		DeadlineHeader: resilienthttp.DeadlineHeader{Disabled: true},
	}
	if p.verdict != nil {
		t.Policy.ClassifyBody = func(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
			if !hostmatch.Match(known, a.Request.URL) {
				return resilienthttp.VerdictDefault
			}
			return p.verdict(a, body)
		}
	}
	if p.event != nil {
		t.Policy.Stream = &resilienthttp.Stream{Classify: p.event}
	}
	if p.harmless != nil {
		t.Policy.Idempotent = func(r *http.Request) bool {
			return r.Method == http.MethodPost && slices.Contains(p.harmless, path.Base(r.URL.Path)) && hostmatch.Match(known, r.URL)
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
	if p.quotaKey != nil || p.cost != nil {
		t.RateLimit = &resilienthttp.RateLimit{Key: ofHosts(known, p.quotaKey), Cost: ofHosts(known, p.cost)}
	}
	return t
}

// ofHosts returns f for requests to the hosts; for others it returns the zero value.
func ofHosts[T any](hosts []string, f func(*http.Request) T) func(*http.Request) T {
	if f == nil {
		return nil
	}
	return func(r *http.Request) (result T) {
		if hostmatch.Match(hosts, r.URL) {
			result = f(r)
		}
		return result
	}
}

// parse decodes a JSON body. Fields that are missing or have another type stay zero.
func parse[T any](body []byte) T {
	var v T
	_ = json.Unmarshal(body, &v)
	return v
}
