package fleet

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// Call is one call and its result. The context of its attempts carries it to the server.
type Call struct {
	id     int
	at     time.Duration // since the start
	client int           // index; -1: a bare client that is not measured
	path   string
	model  string // of the field X-Model; "": none

	attempts atomic.Int32 // that reached the server

	latency time.Duration
	success bool
	status  int // of the response; 0: none
}

// NewCall returns a call of the client to the path, at a time since the start. The model is the value of
// the field X-Model; "": none.
func NewCall(id int, at time.Duration, client int, path, model string) *Call {
	return &Call{id: id, at: at, client: client, path: path, model: model}
}

type callKey struct{}

func withCall(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// callOf returns the call in the context, or nil.
func callOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// CallID returns the id of the call in the context of an attempt, as NewCall got it.
func CallID(ctx context.Context) int { return callOf(ctx).id }

// Model is a server and its calls that another package draws: see package zoo. A Scenario with a Model has
// no other server. Of its Load it has the clients, the deadline and the workers.
type Model interface {
	// Calls returns the calls by time, without those of workers.
	Calls() []*Call
	// Work returns the n-th call of a worker, which begins at a time since the start.
	Work(worker, n int, at time.Duration) *Call
	// Arrive returns the response to an attempt of the call with the id. It is safe for concurrent use.
	Arrive(id, attempt int, at time.Duration) (Response, http.Header)
}
