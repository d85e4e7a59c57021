package durable

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// worker is the name under which the Engine holds intents, and its lease. If the store did not
// answer, the Engine does not know what it holds under the name. The worker then claims no
// more, and ends its heartbeat after its last known attempt, so that the rest is reaped.
type worker struct {
	name  string
	lease lease

	holds    int  // claims that are under way, and attempts that are not over; by core.mu
	draining bool // it claims no more; by core.mu
}

// currentWorker is the worker that claims. core.mu is held.
func (c *core) currentWorker() *worker {
	if n := len(c.workers); n > 0 && !c.workers[n-1].draining {
		return c.workers[n-1]
	}
	w := &worker{name: rand.Text(), lease: lease{length: c.LeaseDuration}}
	c.workers = append(c.workers, w)
	return w
}

// release ends a claim or an attempt. lost means that its result in the store is unknown.
// core.mu is held.
func (c *core) release(w *worker, lost bool) {
	w.holds--
	w.draining = w.draining || lost
	if w.draining && w.holds == 0 {
		c.workers = slices.DeleteFunc(c.workers, func(x *worker) bool { return x == w })
	}
}

// beat renews the leases of the workers until ctx ends.
func (c *core) beat(ctx context.Context) {
	wait := c.LeaseDuration / 3
	for sleep.Context(ctx, wait) == nil {
		wait = c.LeaseDuration / 3
		c.mu.Lock()
		workers := slices.Clone(c.workers)
		c.mu.Unlock()
		for _, w := range workers {
			if err := c.beatOnce(ctx, w); err != nil && ctx.Err() == nil {
				c.Trace.failed(err)
				wait = c.LeaseDuration / 20
			}
		}
	}
}

func (c *core) beatOnce(ctx context.Context, w *worker) error {
	asked := time.Now()
	limited, cancel := context.WithTimeout(ctx, c.LeaseDuration/3)
	defer cancel()
	_, err := c.Store.Heartbeat(limited, w.name, c.LeaseDuration)
	if err == nil {
		w.lease.extend(asked, c.LeaseDuration)
	}
	return err
}

// releaseLease ends the lease of an idle worker. If that fails, the lease ends by itself.
func (c *core) releaseLease(ctx context.Context) {
	c.mu.Lock()
	w := c.currentWorker()
	idle := w.holds == 0 && w.lease.context() != nil
	w.draining = w.draining || idle
	if idle {
		c.workers = c.workers[:len(c.workers)-1]
	}
	c.mu.Unlock()
	if !idle {
		return
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomeGrace/8)
	defer cancel()
	_, _ = c.Store.Heartbeat(limited, w.name, 0)
}

var (
	errLease   = errors.New("durable: the worker's lease is about to end")
	errDrained = errors.New("durable: the worker has stopped")
	errTimeout = errors.New("durable: the attempt took too long")
	errKeyTTL  = errors.New("durable: the protection of the key is about to end")

	// errLostLease is the error of an attempt of a worker before, which did not end it.
	errLostLease = errors.New("durable: the worker before lost its lease")
)

// lease is the time for which the worker can rely on what it holds: a quarter of a lease less
// than the store's last promise.
type lease struct {
	length time.Duration

	mu     sync.Mutex
	until  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// extend extends the lease by a promise that was requested at that time.
func (l *lease) extend(asked time.Time, promised time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := asked.Add(min(promised, l.length) - l.length/4); until.After(l.until) {
		l.until = until
	}
	if l.ctx != nil && l.ctx.Err() == nil {
		return
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	if left := time.Until(l.until); left > 0 {
		l.timer = time.AfterFunc(left, l.end)
	} else { // the answer came late
		l.cancel(errLease)
	}
}

// end ends the lease if it is over.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := time.Until(l.until); left > 0 {
		l.timer.Reset(left)
		return
	}
	l.cancel(errLease)
}

// context returns a context that ends with the lease. nil: there was none.
func (l *lease) context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ctx
}
