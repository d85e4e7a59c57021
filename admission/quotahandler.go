package admission

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/field"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// quotaProblems are the rejections of one Quota.
type quotaProblems struct {
	exceeded, exceedsBurst, key, store, wrong problem
}

func newQuotaProblems(name string) *quotaProblems {
	p := quotaProblems{
		exceeded:     newProblem(http.StatusTooManyRequests, quotaExceeded, "The quota has been used up", name),
		exceedsBurst: newProblem(http.StatusTooManyRequests, quotaExceeded, "The request costs more than the quota ever holds", name),
		key:          newProblem(http.StatusForbidden, explained+"key", "The request belongs to no known quota"),
		store:        newProblem(http.StatusServiceUnavailable, explained+"store", "The quota is not available"),
		wrong:        misconfigured(),
	}
	p.exceedsBurst.permanent = true
	return &p
}

// Handler returns a handler that calls next for requests within the quota, and rejects
// the others.
func (q *Quota) Handler(next http.Handler) http.Handler {
	problems := newQuotaProblems(cmp.Or(q.Name, defaultName))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q.init()
		if q.err != nil {
			q.reject(w, r, Event{Reason: ReasonMisconfigured, Err: q.err}, &problems.wrong)
			return
		}
		key, err := q.keyOf(r)
		if err != nil {
			q.reject(w, r, Event{Reason: ReasonKeyError, Err: err}, &problems.key)
			return
		}
		cost := 1
		if q.Cost != nil {
			cost = max(q.Cost(r), 0)
		}
		result, shared, err := q.take(r.Context(), key, cost)
		if err != nil {
			q.fail(w, r, key, err, problems)
			return
		}
		if shared || q.shared == nil { // in place of the store, the local bucket does not know what is left
			q.policy.addHeaders(w.Header(), &result, q.Legacy)
		}
		if !result.OK {
			q.reject(w, r, Event{Key: key, Reason: ReasonQuotaExceeded, RetryAfter: jittered(result.RetryAfter)}, &problems.exceeded)
			return
		}
		if q.Trace != nil {
			q.Trace.admitted(&Event{Request: r, Quota: q.policy.name, Key: key})
		}
		began := time.Now()
		next.ServeHTTP(w, r)
		if cost > 0 && field.Value(w.Header(), "Idempotency-Replayed") == "true" && (!q.Sliding || time.Since(began) < q.rule.Window) {
			q.giveBack(r.Context(), key, cost, shared)
		}
	})
}

// keyOf returns the key of the request's quota.
func (q *Quota) keyOf(r *http.Request) (string, error) {
	if q.Key != nil {
		return q.Key(r)
	}
	return clientKey(r.RemoteAddr), nil
}

// fail rejects a request for which there is no result.
func (q *Quota) fail(w http.ResponseWriter, r *http.Request, key string, err error, problems *quotaProblems) {
	event := Event{Key: key, Err: err, Reason: ReasonStoreUnavailable, RetryAfter: jittered(retryAfter)}
	switch {
	case errors.Is(err, quotastore.ErrExceedsBurst):
		event.Reason, event.RetryAfter = ReasonExceedsBurst, 0
		w.Header().Add("Ratelimit-Policy", q.policy.header)
		q.reject(w, r, event, &problems.exceedsBurst)
		return
	case r.Context().Err() != nil:
		event.Reason = reasonOf(r.Context())
	}
	q.reject(w, r, event, &problems.store)
}

// reject calls the hook and sends the problem.
func (q *Quota) reject(w http.ResponseWriter, r *http.Request, e Event, p *problem) {
	if q.Trace != nil {
		e.Request, e.Quota, e.Status = r, q.policy.name, p.status
		q.Trace.rejected(&e)
	}
	reject(w, r, p, e.RetryAfter)
}

// clientKey returns the key for a client's address: the IPv4 address, or the first 64
// bits of an IPv6 address, because one client can use all addresses of such a network.
// Other text, for example that of a Unix socket, is returned unchanged.
func clientKey(address string) string {
	if colon := strings.IndexByte(address, ':'); colon > 0 && strings.LastIndexByte(address, ':') == colon {
		return address[:colon] // IPv4 in the form of net/http
	}
	host, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	ip := host.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}
