package pgstore_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
)

// caller is a transaction of the caller, with a store within it.
type caller struct {
	*pgstore.Tx

	tx       any
	commit   func() error
	rollback func() error
}

func newCaller(t *testing.T, dsn string, store *pgstore.Store, flavor string) *caller {
	t.Helper()
	if flavor == "pgx" {
		tx, err := newPool(t, dsn, nil).Begin(t.Context())
		require.NoError(t, err)
		return &caller{store.WithTx(tx), tx, func() error { return tx.Commit(context.Background()) },
			func() error { return tx.Rollback(context.Background()) }}
	}
	tx, err := newDB(t, dsn).BeginTx(context.Background(), nil)
	require.NoError(t, err)
	return &caller{store.WithSQLTx(tx), tx, tx.Commit, tx.Rollback}
}

// Both kinds of transaction work with either kind of store.
func eachCaller(t *testing.T, test func(t *testing.T, dsn string, store *pgstore.Store, begin func() *caller)) {
	t.Helper()
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		_ = effects(t, dsn)
		for _, f := range flavors {
			t.Run("in a transaction of "+f.name, func(t *testing.T) {
				test(t, dsn, store, func() *caller { return newCaller(t, dsn, store, f.name) })
			})
		}
	})
}

// TestTx_excludesOthers: other claims do not wait for a claim of a caller's
// transaction, neither of a new record nor of one that it took over.
func TestTx_excludesOthers(t *testing.T) {
	t.Parallel()
	eachCaller(t, func(t *testing.T, _ string, store *pgstore.Store, begin func() *caller) {
		for _, taken := range []bool{false, true} {
			claim := newClaim(t.Name())
			claim.Takeover = idempotency.Reexecute
			claim.Key += map[bool]string{false: " new", true: " taken over"}[taken]
			var dead idempotency.Lease
			if taken {
				first := claim
				first.Owner, first.Lease = rand.Text(), time.Microsecond
				dead = acquire(t, store, first)
			}
			c := begin()
			lease := acquire(t, c, claim)

			other := newClaim(claim.Key)
			other.Takeover = idempotency.Reexecute
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			reservation, err := store.Reserve(ctx, other)
			require.NoError(t, err)
			assert.Equal(t, idempotency.DecisionInProgress, reservation.Decision)
			assert.Equal(t, claim.ID, reservation.Record.ID)
			reservation, tx, err := store.Begin(ctx, other, 0)
			require.NoError(t, err)
			assert.Equal(t, idempotency.DecisionInProgress, reservation.Decision)
			assert.Nil(t, tx)
			if taken {
				err := store.Renew(ctx, dead, time.Hour)
				assert.ErrorContains(t, err, "locked", "whether it is lost is not decided")
			}
			cancel()

			require.NoError(t, c.Complete(t.Context(), lease, completed))
			require.NoError(t, c.commit())
			reservation, err = store.Reserve(t.Context(), other)
			require.NoError(t, err)
			assert.Equal(t, idempotency.DecisionDone, reservation.Decision)
			if taken {
				assert.ErrorIs(t, store.Renew(t.Context(), dead, time.Hour), idempotency.ErrLeaseLost)
			}
		}
	})
}

// TestTx_waitsForTx: of two callers' transactions the second waits. It gets the
// first one's result, or the operation if the first one rolls back.
func TestTx_waitsForTx(t *testing.T) {
	t.Parallel()
	eachCaller(t, func(t *testing.T, _ string, _ *pgstore.Store, begin func() *caller) {
		for _, commit := range []bool{false, true} {
			key := t.Name() + map[bool]string{false: " rollback", true: " commit"}[commit]
			first, second := begin(), begin()
			lease := acquire(t, first, newClaim(key))
			require.NoError(t, first.Complete(t.Context(), lease, completed))
			answer := make(chan idempotency.Reservation, 1)
			go func() {
				reservation, err := second.Reserve(context.Background(), newClaim(key))
				assert.NoError(t, err)
				answer <- reservation
			}()
			select {
			case <-answer:
				t.Error("it did not wait")
			case <-time.After(50 * time.Millisecond):
			}
			if commit {
				require.NoError(t, first.commit())
				assert.Equal(t, idempotency.DecisionDone, (<-answer).Decision)
			} else {
				require.NoError(t, first.rollback())
				assert.Equal(t, idempotency.DecisionAcquired, (<-answer).Decision)
			}
			require.NoError(t, second.rollback())
		}
	})
}

// TestTx_waitEnds: a lock_timeout, or the end of the context, ends the wait. The
// transaction has failed then.
func TestTx_waitEnds(t *testing.T) {
	t.Parallel()
	eachCaller(t, func(t *testing.T, _ string, _ *pgstore.Store, begin func() *caller) {
		first, second, third := begin(), begin(), begin()
		acquire(t, first, newClaim(t.Name()))

		require.NoError(t, execute(second.tx, `SET LOCAL lock_timeout = '10ms'`))
		_, err := second.Reserve(t.Context(), newClaim(t.Name()))
		assert.Equal(t, "55P03", code(err))
		require.NoError(t, second.rollback())

		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		assert.ErrorIs(t, errOf(third.Reserve(ctx, newClaim(t.Name()))), context.DeadlineExceeded)
		_ = third.rollback()
		require.NoError(t, first.rollback())
	})
}

// TestTx_Begin ends the work by each of its ends, and commits the caller's
// transaction.
func TestTx_Begin(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		end  func(tx idempotency.Transaction) error
		want error
		rows int
		done bool
	}{
		{"Commit", commit, nil, 1, true},
		{"RollbackAndRecord", recordAlone, nil, 0, true},
		{"Rollback", rollBack, nil, 0, false},
		{"Commit after a failed statement", func(tx idempotency.Transaction) error {
			_ = execute(tx.Value(), `SELECT 1/0`)
			return commit(tx)
		}, idempotency.ErrTransactionFailed, 0, false},
		{"RollbackAndRecord after a failed statement", func(tx idempotency.Transaction) error {
			_ = execute(tx.Value(), `SELECT 1/0`)
			return recordAlone(tx)
		}, nil, 0, true},
		{"Commit of an invalid outcome", func(tx idempotency.Transaction) error {
			return tx.Commit(t.Context(), idempotency.Outcome{})
		}, idempotency.ErrInvalid, 0, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
				count := effects(t, dsn)
				for _, f := range flavors {
					for _, released := range []bool{false, true} {
						claim := newClaim(f.name + map[bool]string{true: " released"}[released])
						if released {
							require.NoError(t, store.Release(t.Context(), acquire(t, store, claim)))
							claim.Owner = rand.Text()
						}
						c := newCaller(t, dsn, store, f.name)
						assert.True(t, c.InCallerTx())
						record, tx := beginClaim(t, c, claim)
						assert.Equal(t, c.tx, tx.Value())
						require.NoError(t, insert(t.Context(), tx.Value(), claim.Key))
						require.ErrorIs(t, row.end(tx), row.want)
						require.NoError(t, tx.Rollback(t.Context()))
						require.Error(t, tx.Commit(t.Context(), completed), "it is over")
						again, none, err := c.Begin(t.Context(), newClaim(claim.Key), 0)
						require.NoError(t, err, "the caller's transaction goes on")
						if row.done {
							assert.Nil(t, none)
							assert.Equal(t, record.Lease(), again.Record.Lease())
						} else {
							require.NoError(t, none.Rollback(t.Context()))
						}
						require.NoError(t, insert(t.Context(), c.tx, claim.Key+" after"))
						require.NoError(t, c.commit())

						wantRows(t, count, claim.Key, row.rows)
						wantRows(t, count, claim.Key+" after", 1)
						stored, err := store.Load(t.Context(), claim.ID)
						switch {
						case row.done:
							require.NoError(t, err)
							assert.Equal(t, record.Lease(), stored.Lease())
							assert.Equal(t, idempotency.Completed, stored.Status)
						case released:
							assert.Equal(t, idempotency.FailedRetryable, stored.Status)
						default:
							require.ErrorIs(t, err, idempotency.ErrNotFound)
						}
					}
				}
			})
		})
	}
}

// TestTx_workEndsTransaction: if the work ends the caller's transaction, the result is
// unknown.
func TestTx_workEndsTransaction(t *testing.T) {
	t.Parallel()
	eachCaller(t, func(t *testing.T, _ string, store *pgstore.Store, begin func() *caller) {
		for name, end := range ends {
			c := begin()
			_, tx := beginClaim(t, c, newClaim(name))
			require.NoError(t, c.commit())
			assert.ErrorIs(t, end(tx), idempotency.ErrUnknown, name)
		}
	})
}

// TestTx_marksUnknown: a dead execution becomes Unknown when the caller commits.
func TestTx_marksUnknown(t *testing.T) {
	t.Parallel()
	eachCaller(t, func(t *testing.T, _ string, store *pgstore.Store, begin func() *caller) {
		for name, claim := range map[string]func(c *caller, claim idempotency.Claim) (idempotency.Reservation, error){
			"Begin": func(c *caller, claim idempotency.Claim) (idempotency.Reservation, error) {
				reservation, tx, err := c.Begin(t.Context(), claim, 0)
				assert.Nil(t, tx)
				return reservation, err
			},
			"Reserve": func(c *caller, claim idempotency.Claim) (idempotency.Reservation, error) {
				return c.Reserve(t.Context(), claim)
			},
		} {
			dead := newClaim(t.Name() + name)
			dead.Lease = time.Microsecond
			acquire(t, store, dead)
			c := begin()
			reservation, err := claim(c, newClaim(dead.Key))
			require.NoError(t, err)
			assert.Equal(t, idempotency.DecisionUnknown, reservation.Decision)
			assert.True(t, reservation.LeaseExpired)
			require.NoError(t, c.commit())
			assert.Equal(t, idempotency.Unknown, statusOf(t, store, dead.ID))
		}
	})
}

// TestTx_setsNothing: the caller's transaction keeps its settings.
func TestTx_setsNothing(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		pool := newPool(t, withParameter(t, dsn, "synchronous_commit", "off"), nil)
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		defer tx.Rollback(context.Background()) //nolint:errcheck // The test is over.
		before := bounds(t, tx, "synchronous_commit", "lock_timeout")
		inbox := store.WithTx(tx)
		claim := newClaim("key")
		claim.Lease, claim.Takeover = time.Microsecond, idempotency.Reexecute
		acquire(t, inbox, claim)
		claim.Owner = rand.Text()
		acquire(t, inbox, claim) // takes over
		_, nested := begin(t, inbox, "nested")
		require.NoError(t, nested.Commit(t.Context(), completed))
		assert.Equal(t, before, bounds(t, tx, "synchronous_commit", "lock_timeout"))
	})
}
