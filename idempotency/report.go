package idempotency

import (
	"context"
	"errors"
	"time"
)

// report is what is told of one request or message.
type report struct {
	trace *Trace
	event Event
	start time.Time
}

func (r *runner) report(event Event) report {
	return report{trace: r.trace, event: event, start: time.Now()}
}

// done tells what was done with it.
func (r *report) done(d Disposition, code int, err error) {
	r.event.Disposition, r.event.Code, r.event.Err = d, code, err
	r.event.Latency = time.Since(r.start)
	if r.trace != nil && r.trace.Done != nil {
		r.trace.Done(&r.event)
	}
}

// unclaimed is what was done for one who got no answer to his claim: the store has
// failed, unless he has left meanwhile, and err is about that.
func unclaimed(ctx context.Context, err error) Disposition {
	if errors.Is(ctx.Err(), context.Canceled) && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		return Left
	}
	return StoreFailed
}

// tell calls the hook for a record that has become Unknown, or that will if the
// store did not hear of it.
func (r *report) tell(status Status, err error) {
	if status != Unknown || errors.Is(err, ErrLeaseLost) {
		return
	}
	r.event.Err = err
	if r.trace != nil && r.trace.Unknown != nil {
		r.trace.Unknown(&r.event)
	}
}
