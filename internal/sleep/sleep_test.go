package sleep

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPause(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name        string
		pause       func(context.Context, time.Duration) error
		timeout     time.Duration
		err         error
		least, most time.Duration
	}{
		{"for", Context, time.Minute, nil, 2 * time.Second, 2 * time.Second},
		{"for, until it is over", Context, time.Second, context.DeadlineExceeded, time.Second, time.Second},
		{"about", Jittered, time.Minute, nil, time.Second, 2 * time.Second},
		{"about, until it is over", Jittered, time.Millisecond, context.DeadlineExceeded, time.Millisecond, time.Millisecond},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), row.timeout)
				defer cancel()
				began := time.Now()
				require.ErrorIs(t, row.pause(ctx, 2*time.Second), row.err)
				took := time.Since(began)
				require.GreaterOrEqual(t, took, row.least)
				require.LessOrEqual(t, took, row.most)
			})
		})
	}
	require.NoError(t, Jittered(t.Context(), 0))
}
