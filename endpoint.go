package resilienthttp

import (
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/route"
)

// endpoints is the list of a call of package endpoints, with the state of each endpoint's scope.
type endpoints struct {
	*route.Call

	records []*record
}

// destination is where the last attempt that is not concurrent goes, or the next retry.
type destination struct {
	record     *record
	visit      *route.Visit // nil without endpoints
	scopeFails bool         // the last call of the scope had failed when this one began
}

// findServers finds the state of the server, or of each endpoint. Transport.Scope splits the scopes of endpoints.
func (c *call) findServers(list *route.Route) {
	if list == nil {
		c.record = c.config.record(c.scope, c.priority, c.start)
		c.scopeFails = c.record.fails(c.start.Sub(c.origin))
		return
	}
	e := &endpoints{records: make([]*record, len(list.Targets))}
	e.Call = route.NewCall(list, func(t *route.Target, i int) (*circuit.Circuit, *route.Rest) {
		name := t.Scope
		if c.config.scope != nil {
			name += " " + c.scope
		}
		r := c.config.record(name, c.priority, c.start)
		e.records[i] = r
		return r.circuit, &r.rest
	})
	e.Safe, e.Free = c.safe, c.idempotent || c.key.value != "" && list.Shared
	c.endpoints, c.first.visit = e, e.First()
	c.use(c.first.visit)
}

// use notes the endpoint of an attempt that is not concurrent, or of the next retry.
func (c *call) use(v *route.Visit) {
	c.visit, c.record = v, c.endpoints.records[v.Index]
	c.scopeFails = c.record.fails(c.start.Sub(c.origin))
}

// record returns the state of the scope to which the attempt goes.
func (a *attempt) record() *record {
	if a.visit == nil {
		return a.call.record
	}
	return a.call.endpoints.records[a.visit.Index]
}

// scopeOf returns the scope of the attempts to an endpoint. "" is one that was not sent.
func (c *call) scopeOf(endpoint string) string {
	if c.endpoints == nil {
		return c.scope
	}
	for i := range c.endpoints.Targets {
		if c.endpoints.Targets[i].Name == endpoint {
			return c.endpoints.records[i].name
		}
	}
	return c.record.name
}

// passEndpoints passes the gates of the first endpoint that admits the attempt. If the circuits of all hold it, it looks
// again now and then.
func (c *call) passEndpoints(a *attempt, now time.Time) (at time.Time, err *Error) {
	for at = now; ; {
		begin := at
		c.endpoints.Pass(a.visit, a.concurrent, at, func() *route.Rejection {
			if !a.concurrent {
				c.use(a.visit)
			}
			if at, err = c.passGates(a, at); err == nil || !err.byGate() {
				return nil
			}
			a.cancelPermits(at)
			return &route.Rejection{Waits: err.Reason != ErrBreakerOpen, Until: err.NotBefore}
		})
		if err == nil || err.Reason != ErrBreakerOpen || at.Sub(begin) < endpointHold { // it may wait no longer
			return at, err
		}
	}
}

// planMove plans the retry, at another endpoint if the request may move. A 421, or a 409 while the
// server may be at work, is about this endpoint.
func (c *call) planMove(last *attempt) (wait time.Duration, reason error) {
	if c.endpoints == nil {
		return c.planRetry(last, false)
	}
	next, moves := c.endpoints.Next(last.visit, last.conflict || last.responded(http.StatusMisdirectedRequest), false, time.Now())
	c.use(next)
	if wait, reason = c.planRetry(last, moves); reason != nil {
		c.use(last.visit)
	}
	return wait, reason
}
