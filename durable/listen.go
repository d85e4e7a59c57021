package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// The waits before the Store is asked to listen again.
const (
	minListenWait = time.Second
	maxListenWait = time.Minute
)

// listen lets the Store wake this Engine after commits of other processes, if it can, until
// ctx ends. stop waits for that.
func (c *core) listen(ctx context.Context) (stop func()) {
	listener, ok := c.Store.(Listener)
	if !ok {
		return func() {}
	}
	var listening sync.WaitGroup
	listening.Go(func() { c.listenAgain(ctx, listener) })
	return listening.Wait
}

// listenAgain listens, and again when that has failed. Each failure is reported. Meanwhile the
// Engine polls.
func (c *core) listenAgain(ctx context.Context, listener Listener) {
	wait := minListenWait
	for {
		began := time.Now()
		err := listener.Listen(ctx, c.wakeUp)
		if ctx.Err() != nil {
			return
		}
		c.Trace.failed(fmt.Errorf("durable: listen: %w", err))
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		if time.Since(began) > maxListenWait {
			wait = minListenWait
		}
		if sleep.Jittered(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, maxListenWait)
	}
}
