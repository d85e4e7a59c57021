package fleet

import (
	"context"
	"sync/atomic"
	"time"
)

// call is one call and its result. The context of its attempts carries it to the server.
type call struct {
	id     int
	at     time.Duration // since the start
	client int           // index; -1: a bare client that is not measured
	path   string

	attempts atomic.Int32 // that reached the server

	latency time.Duration
	success bool
	status  int // of the response; 0: none
}

type callKey struct{}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// callOf returns the call in the context, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}
