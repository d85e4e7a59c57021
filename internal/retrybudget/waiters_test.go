package retrybudget

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const never = time.Hour

// waitEnd is why a call leaves a queue without tokens.
type waitEnd struct {
	name    string
	longest time.Duration
	cancel  bool
	after   time.Duration
}

func waitEnds() []waitEnd {
	return []waitEnd{
		{"its longest wait", time.Second, false, time.Second},
		{"it must not wait", 0, false, 0},
		{"its caller cancels", never, true, 0},
	}
}

// wait joins a queue, and requires that the call leaves it when it should.
func (e waitEnd) wait(t *testing.T, join func(ctx context.Context, longest time.Duration)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := time.Now()
	if e.cancel {
		time.AfterFunc(0, cancel)
	}
	join(ctx, e.longest)
	require.Equal(t, e.after, time.Since(begun))
}
