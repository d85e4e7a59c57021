package riverwork_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/durable/riverwork"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// gatewayFunc is a Gateway.
type gatewayFunc func(ctx context.Context, s *durable.Send) durable.Outcome

func (f gatewayFunc) Send(ctx context.Context, s *durable.Send) durable.Outcome { return f(ctx, s) }

func pay(key string) durable.Intent {
	return durable.Intent{
		ID: idempotency.ID{Scope: "acme", Operation: "charge", Key: key}, Gateway: "psp", Payload: []byte(`{"amount": 100}`),
	}
}

func jobOf(id idempotency.ID) *river.Job[riverwork.Args] {
	return &river.Job[riverwork.Args]{Args: riverwork.Args(id)}
}

// broken is a store that does not answer.
type broken struct{ durable.Store }

var errBroken = errors.New("connection refused")

func (broken) Claim(context.Context, driver.Claim) (driver.Claimed, error) {
	return driver.Claimed{}, errBroken
}

// What Work tells River: nothing (completed), a snooze, a cancellation, or a failure.

func completed(t *testing.T, err error) {
	t.Helper()
	assert.NoError(t, err)
}

func snoozed(d time.Duration) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		t.Helper()
		var snooze *river.JobSnoozeError
		require.ErrorAs(t, err, &snooze)
		assert.Equal(t, d, snooze.Duration)
	}
}

func cancelled(cause error) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		t.Helper()
		var cancel *river.JobCancelError
		require.ErrorAs(t, err, &cancel)
		assert.ErrorIs(t, err, cause)
	}
}

func failed(cause error) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		t.Helper()
		var (
			snooze *river.JobSnoozeError
			cancel *river.JobCancelError
		)
		require.ErrorIs(t, err, cause)
		assert.False(t, errors.As(err, &snooze) || errors.As(err, &cancel), "%v", err)
	}
}

// every is a Policy that sends again after a minute, or buries.
type every struct{ bury bool }

func (e every) Next(_ *durable.History, now time.Time) durable.Decision {
	if e.bury {
		return durable.Decision{Action: durable.Bury}
	}
	return durable.Decision{At: now.Add(time.Minute)}
}

// TestWork is a run of the job of an intent in each of its states, and of none.
func TestWork(t *testing.T) {
	t.Parallel()
	in := pay("1")
	for _, row := range []struct {
		name    string
		class   durable.Class                         // what a send comes to
		delay   time.Duration                         // until it is due
		absent  bool                                  // it is not enqueued
		prepare func(t *testing.T, e *durable.Engine) // nil: nothing
		change  func(w *riverwork.Worker)             // nil: nothing
		job     func(*river.Job[riverwork.Args])      // nil: that of the intent
		want    func(t *testing.T, err error)
		sends   int
	}{
		{name: "it is done", class: durable.ClassSucceeded, want: completed, sends: 1},
		{name: "failed: snoozed", class: durable.ClassFailed, want: snoozed(time.Minute), sends: 1},
		{name: "unknown: snoozed", class: durable.ClassUnknown, want: snoozed(time.Minute), sends: 1},
		{
			name: "declined: completed", class: durable.ClassDeclined, want: completed, sends: 1,
			change: func(w *riverwork.Worker) { w.Engine.Policy = every{bury: true} },
		},
		{name: "not due", want: snoozed(time.Hour), delay: time.Hour},
		{name: "due within a Poll", want: snoozed(time.Second), delay: time.Millisecond},
		{name: "held by another worker: snoozed", want: snoozed(30 * time.Second), prepare: func(t *testing.T, e *durable.Engine) {
			t.Helper()
			claimed, err := e.Store.Claim(t.Context(), driver.Claim{
				Worker: "another", Lease: time.Hour, Limit: 1, Gateways: map[string]driver.Allowance{"psp": {Limit: 1, PerScope: 1}},
			})
			require.NoError(t, err)
			require.Len(t, claimed.Changes, 1)
		}},
		{name: "done before", class: durable.ClassSucceeded, want: completed, sends: 1, prepare: func(t *testing.T, e *durable.Engine) {
			t.Helper()
			next, err := e.WorkOne(t.Context(), in.ID)
			require.NoError(t, err)
			require.Zero(t, next)
		}},
		{name: "cancelled before", want: completed, prepare: func(t *testing.T, e *durable.Engine) {
			t.Helper()
			require.NoError(t, e.Cancel(t.Context(), in.ID))
		}},
		{name: "no gateway of that name", want: completed, absent: true, prepare: func(t *testing.T, e *durable.Engine) {
			t.Helper()
			elsewhere := &durable.Engine{Store: e.Store, Gateways: map[string]durable.Gateway{"bank": gatewayFunc(nil)}}
			other := in
			other.Gateway = "bank"
			_, err := elsewhere.Enqueue(t.Context(), other)
			require.NoError(t, err)
		}},
		{name: "unknown to the store", want: cancelled(durable.ErrNotFound), absent: true},
		{name: "no name", want: cancelled(durable.ErrInvalid), job: func(j *river.Job[riverwork.Args]) { j.Args = riverwork.Args{} }},
		{name: "no text", want: cancelled(durable.ErrInvalid), job: func(j *river.Job[riverwork.Args]) { j.Args.Key = "\xff" }},
		{name: "no Engine", want: failed(durable.ErrInvalid), change: func(w *riverwork.Worker) { w.Engine = nil }},
		{name: "no Store", want: failed(durable.ErrInvalid), change: func(w *riverwork.Worker) { w.Engine = new(durable.Engine) }},
		{name: "the store is down", want: failed(errBroken), change: func(w *riverwork.Worker) {
			w.Engine.Store = broken{w.Engine.Store}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sends := 0
				engine := func(store durable.Store) *durable.Engine {
					return &durable.Engine{Store: store, Policy: every{}, Gateways: map[string]durable.Gateway{
						"psp": gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
							sends++
							return durable.Outcome{Class: row.class}
						}),
					}}
				}
				store := new(durable.Memory)
				before := engine(store)
				if !row.absent {
					in := in
					in.NotBefore = time.Now().Add(row.delay)
					_, err := before.Enqueue(t.Context(), in)
					require.NoError(t, err)
				}
				if row.prepare != nil {
					row.prepare(t, before)
				}
				worker := &riverwork.Worker{Engine: engine(store)}
				if row.change != nil {
					row.change(worker)
				}
				job := jobOf(in.ID)
				if row.job != nil {
					row.job(job)
				}
				row.want(t, worker.Work(t.Context(), job))
				assert.Equal(t, row.sends, sends)
			})
		})
	}
}

// TestTimeout leaves a job longer than the send in it may take.
func TestTimeout(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		engine *durable.Engine
		want   time.Duration
	}{
		{"no Engine", nil, 6 * time.Minute},
		{"the default", new(durable.Engine), 6 * time.Minute},
		{"the default written out", &durable.Engine{Timeout: 5 * time.Minute}, 6 * time.Minute},
		{"short", &durable.Engine{Timeout: time.Second}, 61 * time.Second},
		{"none", &durable.Engine{Timeout: -1}, -1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, row.want, (&riverwork.Worker{Engine: row.engine}).Timeout(nil))
		})
	}
}
