package pgstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// What is sent again, how often, and how: after a serialization failure in a
// transaction of ours, which is read committed, and nothing in one of the caller's.
func TestSafely(t *testing.T) {
	other := errors.New("the network is down")
	serialization := fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: pgkit.SerializationFailure})
	for _, row := range []struct {
		name                 string
		err                  error
		times, in, withinToo int
	}{
		{"done", nil, 1, 0, 1},
		{"lost", driver.ErrLeaseLost, 1, 0, 1},
		{"the network", other, 1, 0, 1},
		{"moved", errMoved, pgkit.Tries, 0, pgkit.Tries},
		{"locked", errLocked, pgkit.Tries, 0, 1},
		{"a lock_timeout", &pgconn.PgError{Code: pgkit.LockNotAvailable}, pgkit.Tries, 0, 1},
		{"deadlock", &pgconn.PgError{Code: pgkit.DeadlockDetected}, pgkit.Tries, 0, 1},
		{"serialization", serialization, pgkit.Tries, pgkit.Tries - 1, 1},
		{"another code", &pgconn.PgError{Code: "23505"}, 1, 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				times, in := 0, 0
				f := func(*verbs) error { times++; return row.err }
				v := &verbs{transact: func(_ context.Context, f func(querier) error) error { in++; return f(nil) }}
				assert.Equal(t, row.err, v.safely(t.Context(), f))
				assert.Equal(t, row.times, times)
				assert.Equal(t, row.in, in, "in a transaction")

				times = 0
				assert.Equal(t, row.err, (&verbs{}).safely(t.Context(), f))
				assert.Equal(t, row.withinToo, times, "in the caller's transaction")

				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				times = 0
				_ = v.safely(ctx, f)
				assert.Equal(t, 1, times, "the context has ended")
			})
		})
	}
}
