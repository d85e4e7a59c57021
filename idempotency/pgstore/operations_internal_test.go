package pgstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

func TestOperations_isRetryable(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name          string
		err           error
		again, within bool
	}{
		{"no error: no", nil, false, false},
		{"lease lost: no", driver.ErrLeaseLost, false, false},
		{"network error: no", errors.New("broken pipe"), false, false},
		{"record moved: also within a transaction", errMoved, true, true},
		{"row locked: not within a transaction", errLocked, true, false},
		{"lock_timeout: not within a transaction", &pgconn.PgError{Code: pgkit.LockNotAvailable}, true, false},
		{"deadlock: not within a transaction", &pgconn.PgError{Code: pgkit.DeadlockDetected}, true, false},
		{"serialization failure: not within a transaction", fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: pgkit.SerializationFailure}), true, false},
		{"read-only server: no", &pgconn.PgError{Code: "25006"}, false, false},
		{"unique violation: no", &pgconn.PgError{Code: "23505"}, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, row.again, (&operations{conns: &connections{}}).isRetryable(row.err))
			assert.Equal(t, row.within, (&operations{}).isRetryable(row.err))
		})
	}
}

func TestReplay_predictor(t *testing.T) {
	t.Parallel()
	var p replayPredictor
	for i, row := range []struct{ isNew, predicts bool }{
		{true, false}, {true, true}, {true, true}, {false, true}, {false, false}, {true, true}, {false, false}, {false, false}, {true, false},
	} {
		p.record(row.isNew)
		assert.Equal(t, row.predicts, p.newKey(), i)
	}
}
