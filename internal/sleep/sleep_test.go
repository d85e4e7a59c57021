package sleep

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		sleep     func(context.Context, time.Duration) error
		timeout   time.Duration
		err       error
		low, high time.Duration
	}{
		{"Context", Context, time.Minute, nil, 2 * time.Second, 2 * time.Second},
		{"Context, ended before", Context, time.Second, context.DeadlineExceeded, time.Second, time.Second},
		{"Jittered", Jittered, time.Minute, nil, time.Second, 2 * time.Second},
		{"Jittered, ended before", Jittered, time.Millisecond, context.DeadlineExceeded, time.Millisecond, time.Millisecond},
		{"BeforeDeadline", BeforeDeadline, time.Minute, nil, 2 * time.Second, 2 * time.Second},
		{"BeforeDeadline, too late", BeforeDeadline, 2 * time.Second, context.DeadlineExceeded, 0, 0},
	} {
		bubble.Parallel(t, row.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), row.timeout)
			defer cancel()
			began := time.Now()
			require.ErrorIs(t, row.sleep(ctx, 2*time.Second), row.err)
			took := time.Since(began)
			require.GreaterOrEqual(t, took, row.low)
			require.LessOrEqual(t, took, row.high)
		})
	}
	require.NoError(t, Jittered(t.Context(), 0))
}

// lateContext ends after its deadline, because its timer is late.
type lateContext struct {
	context.Context

	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

func TestHasEnded(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, row := range []struct {
		name string
		ctx  context.Context
		want bool
	}{
		{"no deadline", t.Context(), false},
		{"canceled", canceled, true},
		{"deadline to come", lateContext{t.Context(), time.Now().Add(time.Hour)}, false},
		{"canceled before its deadline", lateContext{canceled, time.Now().Add(time.Hour)}, true},
		{"deadline has passed, timer is late", lateContext{t.Context(), time.Now()}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, HasEnded(row.ctx))
		})
	}
}
