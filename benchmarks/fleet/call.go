package fleet

import (
	"context"
	"sync/atomic"
	"time"
)

// call is one logical request, and what came of it. The server finds it in the
// request's context, which says which call an attempt belongs to.
type call struct {
	id     int
	at     time.Duration // since the start
	client int           // of the topology's clients; -1: a bare one, which is not measured
	path   string

	attempts atomic.Int32 // that reached the server

	latency time.Duration
	success bool
}

type callKey struct{}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// callOf is the call of the context, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}
