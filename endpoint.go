package resilienthttp

import (
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/route"
)

// visit is where one attempt goes, with the state of the scope.
type visit = route.Visit[*record]

// findServers finds the state of the server, or of each endpoint. Transport.Scope splits the scopes of endpoints.
func (c *call) findServers(list *route.Route) {
	if list == nil {
		c.first.visit.Record = c.config.record(c.scope, c.priority, c.start)
	} else {
		c.route = route.NewCall(list, func(t *route.Target) (*record, *circuit.Circuit, *route.Rest) {
			name := t.Scope
			if c.config.scope != nil {
				name += " " + c.scope
			}
			r := c.config.record(name, c.priority, c.start)
			return r, r.circuit, &r.rest
		})
		c.route.Safe = c.repeats == repeatsNothing
		c.route.Free = c.repeats >= repeatsResult || c.key.value != "" && list.Shared
		c.first.visit = c.route.First()
	}
	c.use(c.first.visit.Record)
}

// use notes the state of the server of an attempt that is not concurrent, or of the next retry.
func (c *call) use(r *record) {
	if c.record != r {
		c.record, c.scopeFails = r, r.failing.Load() && !r.succeededWithin(recentSuccess, c.start.Sub(c.origin))
	}
}

// passGates passes the gates of the first server that admits the attempt. If the circuits of all endpoints hold it, it
// looks again now and then.
func (c *call) passGates(a *attempt, now time.Time) (at time.Time, err *Error) {
	for at = now; ; {
		begin := at
		c.route.Pass(&a.visit, a.concurrent, at, func() *route.Rejection {
			if !a.concurrent {
				c.use(a.visit.Record)
			}
			if at, err = c.passServer(a, at); err == nil || !err.byGate() {
				return nil
			}
			a.cancelPermits(at)
			return &route.Rejection{Waits: err.Reason != ErrBreakerOpen, Until: err.NotBefore}
		})
		if err == nil || err.Reason != ErrBreakerOpen || at.Sub(begin) < c.route.MaxHold() { // it may wait no longer
			return at, err
		}
	}
}

// planMove plans the retry, at another endpoint if the request may move. A 421, or a 409 while the
// server may be at work, is about this endpoint.
func (c *call) planMove(last *attempt) (wait time.Duration, reason error) {
	kind := route.Retry
	if last.conflict || last.responded(http.StatusMisdirectedRequest) {
		kind = route.RetryHere
	}
	next := c.route.Next(&last.visit, kind, time.Now())
	c.use(next.Record)
	if wait, reason = c.planRetry(last, &next); reason != nil {
		c.use(last.visit.Record)
	}
	return wait, reason
}
