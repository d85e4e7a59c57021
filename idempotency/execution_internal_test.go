package idempotency

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a goroutine says that the work has left behind comes too late: the end has
// been decided by what was said before.
func TestNothingIsSaidAfterTheEnd(t *testing.T) {
	e := &execution{}
	e.ctx = context.WithValue(t.Context(), executionKey{}, e)
	require.NoError(t, SetReference(e.ctx, "payment/123"))
	e.finish()
	require.NoError(t, SetReference(e.ctx, ""))
	CommitOnFailure(e.ctx)
	assert.Equal(t, "payment/123", e.referenced())
	assert.False(t, e.commitOnFailure)
}
