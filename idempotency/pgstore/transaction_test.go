package pgstore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/storetest"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// begin claims an operation for transactional work.
func begin(tb testing.TB, store idempotency.Transactor, key string) (idempotency.Record, idempotency.Transaction) {
	tb.Helper()
	return beginClaim(tb, store, newClaim(key))
}

func beginClaim(tb testing.TB, store idempotency.Transactor, claim idempotency.Claim) (idempotency.Record, idempotency.Transaction) {
	tb.Helper()
	reservation, tx, err := store.Begin(context.Background(), claim, time.Minute)
	require.NoError(tb, err)
	require.Equal(tb, idempotency.DecisionAcquired, reservation.Decision)
	require.NotNil(tb, tx)
	tb.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // otherwise the pool does not close
	return reservation.Record, tx
}

// ends are the ends of transactional work.
var ends = map[string]func(tx idempotency.Transaction) error{"Commit": commit, "RollbackAndRecord": recordAlone, "Rollback": rollBack}

func commit(tx idempotency.Transaction) error { return tx.Commit(context.Background(), completed) }

func recordAlone(tx idempotency.Transaction) error {
	return tx.RollbackAndRecord(context.Background(), completed)
}

func rollBack(tx idempotency.Transaction) error { return tx.Rollback(context.Background()) }

// absent expects that there is no record.
func absent(tb testing.TB, store idempotency.Store, id idempotency.ID) {
	tb.Helper()
	assert.ErrorIs(tb, errOf(store.Load(context.Background(), id)), idempotency.ErrNotFound)
}

const foreignRecord = `INSERT INTO idempotency_records (started, updated, expires, generation, status, takeover, scope, operation, key, fingerprint, owner)
	VALUES (now(), now(), now() + interval '1 hour', 1, 2, 0, 'tenant', 'POST /charges', 'key', 'v1:a', 'another')`

// TestCommit_workFails: the work's writes and the record stay together, and an error says whether a repetition may help (I9).
func TestCommit_workFails(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		do   func(t *testing.T, tx any)
		want func(t *testing.T, err error)
	}{
		{"a statement failed: ErrUncommittable", func(t *testing.T, tx any) {
			require.Error(t, execute(tx, `SELECT 1/0`))
		}, func(t *testing.T, err error) { require.ErrorIs(t, err, idempotency.ErrUncommittable) }},
		{"the work wrote the record: ErrLeaseLost", func(t *testing.T, tx any) {
			require.NoError(t, execute(tx, foreignRecord))
		}, func(t *testing.T, err error) { require.ErrorIs(t, err, idempotency.ErrLeaseLost) }},
		{"a deferred constraint is violated: ErrUncommittable", func(t *testing.T, tx any) {
			require.NoError(t, execute(tx, `CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)`))
			require.NoError(t, execute(tx, `INSERT INTO late VALUES (1), (1)`))
		}, atCommit("23505", true)},
		{"a deferred trigger raises an exception: ErrUncommittable", raises("P0001"), atCommit("P0001", true)},
		{"a deferred trigger finds an invalid value: ErrUncommittable", raises("22023"), atCommit("22023", true)},
		{"a deferred trigger finds a missing table: ErrUncommittable", raises("42P01"), atCommit("42P01", true)},
		{"a deferred trigger finds no memory: may pass", raises("53200"), atCommit("53200", false)},
		{"a deferred trigger is canceled: may pass", raises("57014"), atCommit("57014", false)},
		{"a deferred trigger meets a conflict: may pass", raises("40001"), atCommit("40001", false)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
				count := effects(t, dsn)
				record, tx := begin(t, store, "key")
				require.NoError(t, insert(t.Context(), tx.Value(), "key"))
				row.do(t, tx.Value())
				row.want(t, tx.Commit(t.Context(), completed))
				require.NoError(t, tx.Rollback(t.Context()))

				wantRows(t, count, "key", 0)
				absent(t, store, record.ID)
				_, tx = begin(t, store, "key")
				require.NoError(t, tx.Commit(t.Context(), completed), "the operation is free again")
			})
		})
	}
}

// TestTransaction_workSendsDeallocateAll (I11): pgx does not know that the prepared statements are gone. The store closes the connection, so
// neither the application nor the store meets an error on it.
func TestTransaction_workSendsDeallocateAll(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		for _, before := range []int{0, 1, 5} { // executions on the same connection
			for _, broken := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, before it %d, and the work's next statement fails: %v", name, before, broken), func(t *testing.T) {
					t.Parallel()
					pool := newPool(t, postgrestest.Open(t), func(c *pgxpool.Config) { c.MaxConns = 1 })
					store := newStore(t, pool)
					application := func(db interface {
						QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
					}) error {
						var got string
						return db.QueryRow(t.Context(), "SELECT $1::text", "x").Scan(&got)
					}
					work := func(statements ...string) (idempotency.Transaction, error) {
						_, tx := begin(t, store, rand.Text())
						for _, statement := range statements {
							require.NoError(t, execute(tx.Value(), statement))
						}
						if broken {
							return tx, application(tx.Value().(pgx.Tx))
						}
						return tx, nil
					}
					require.NoError(t, application(pool))
					for range before {
						tx, err := work()
						require.NoError(t, errors.Join(err, end(tx)))
					}
					tx, err := work("DEALLOCATE ALL")
					require.Equal(t, broken, err != nil)
					_ = end(tx)
					require.NoError(t, application(pool))
					for range 3 {
						tx, err := work()
						require.NoError(t, errors.Join(err, end(tx)))
						require.NoError(t, store.Complete(t.Context(), acquire(t, store, newClaim(rand.Text())), completed))
						require.NoError(t, store.Check(t.Context()))
					}
				})
			}
		}
	}
}

// TestConnection_statementsAreGone: if another part of the program has sent DEALLOCATE ALL, the first operation that notices it
// closes the connection.
func TestConnection_statementsAreGone(t *testing.T) {
	t.Parallel()
	for name, operation := range map[string]func(store *pgstore.Store) error{
		"Begin": beginAndCommit,
		"replay": func(store *pgstore.Store) error {
			return endedOf(store.Begin(context.Background(), newClaim("done"), 0))
		},
		"Reserve": func(store *pgstore.Store) error {
			return errOf(store.Reserve(context.Background(), newClaim(rand.Text())))
		},
		"Check": func(store *pgstore.Store) error { return store.Check(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, postgrestest.Open(t), func(c *pgxpool.Config) { c.MaxConns = 1 })
			store := newStore(t, pool)
			require.NoError(t, store.Complete(t.Context(), acquire(t, store, newClaim("done")), completed))
			patiently := func() error {
				return storetest.WhileBusy(t.Context(), func() error { return operation(store) })
			}
			for range 3 {
				require.NoError(t, patiently())
			}
			require.NoError(t, errOf(pool.Exec(t.Context(), "DEALLOCATE ALL")))
			require.Equal(t, "26000", code(patiently()))
			for range 3 {
				require.NoError(t, patiently())
			}
		})
	}
}

func beginAndCommit(store *pgstore.Store) error {
	return endedOf(store.Begin(context.Background(), newClaim(rand.Text()), 0))
}

// endedOf commits a transaction, if there is one.
func endedOf(_ idempotency.Reservation, tx idempotency.Transaction, err error) error {
	if err == nil && tx != nil {
		err = tx.Commit(context.Background(), completed)
	}
	return err
}

// raises makes a trigger that fails with a code at COMMIT.
func raises(code string) func(t *testing.T, tx any) {
	return func(t *testing.T, tx any) {
		t.Helper()
		for _, statement := range []string{
			`CREATE TABLE late (id int)`,
			`CREATE FUNCTION pg_temp.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'late' USING ERRCODE = '` + code + `'; END $$`,
			`CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pg_temp.fail()`,
			`INSERT INTO late VALUES (1)`,
		} {
			require.NoError(t, execute(tx, statement))
		}
	}
}

// atCommit expects an error of COMMIT.
func atCommit(want string, always bool) func(t *testing.T, err error) {
	return func(t *testing.T, err error) {
		t.Helper()
		require.Equal(t, want, code(err))
		require.ErrorIs(t, err, idempotency.ErrTransactionFailed, "it is known that nothing was written")
		require.NotErrorIs(t, err, idempotency.ErrLeaseLost)
		require.Equal(t, always, errors.Is(err, idempotency.ErrUncommittable))
	}
}

// TestRollbackAndRecord stores the record without the work's writes, also after a failed
// statement, and on a connection that has not prepared the statements.
func TestRollbackAndRecord(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		count := effects(t, dsn)
		for name, do := range map[string]func(tx any) error{
			"after a failed statement": func(tx any) error { _ = execute(tx, `SELECT 1/0`); return nil },
			"":                         func(any) error { return nil },
		} {
			for range 2 {
				claim := newClaim(name + rand.Text())
				_, tx := beginClaim(t, store, claim)
				require.NoError(t, insert(t.Context(), tx.Value(), claim.Key))
				require.NoError(t, do(tx.Value()))
				require.NoError(t, tx.RollbackAndRecord(t.Context(), idempotency.Outcome{Status: idempotency.FailedFinal, Result: completed.Result}))
				assert.Equal(t, idempotency.FailedFinal, statusOf(t, store, claim.ID))
				wantRows(t, count, claim.Key, 0)
			}
		}
	})
}

// TestCommit_judgedRecordChanged changes the record that the work's record would replace,
// by the execution that was considered dead. Neither the work nor its record is written.
func TestCommit_judgedRecordChanged(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"Commit", "RollbackAndRecord"} {
		for name, move := range map[string]func(store *pgstore.Store, lease idempotency.Lease) error{
			"Complete": func(store *pgstore.Store, lease idempotency.Lease) error {
				return store.Complete(context.Background(), lease, completed)
			},
			"Renew": func(store *pgstore.Store, lease idempotency.Lease) error {
				return store.Renew(context.Background(), lease, time.Hour)
			},
			"Release": func(store *pgstore.Store, lease idempotency.Lease) error {
				return store.Release(context.Background(), lease)
			},
		} {
			t.Run(end+" after "+name, func(t *testing.T) {
				t.Parallel()
				eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
					count := effects(t, dsn)
					claim := newClaim("key")
					claim.Lease, claim.Takeover = time.Microsecond, idempotency.Reexecute
					dead := acquire(t, store, claim)
					record, tx := begin(t, store, "key")
					assert.EqualValues(t, 2, record.Generation)
					require.NoError(t, insert(t.Context(), tx.Value(), "key"))
					require.NoError(t, move(store, dead), "it was alive")
					before, err := store.Load(t.Context(), dead.ID)
					require.NoError(t, err)

					finish := tx.Commit
					if end == "RollbackAndRecord" {
						finish = tx.RollbackAndRecord
					}
					require.ErrorIs(t, finish(t.Context(), completed), idempotency.ErrLeaseLost)
					after, err := store.Load(t.Context(), dead.ID)
					require.NoError(t, err)
					assert.Equal(t, before, after)
					wantRows(t, count, "key", 0)
				})
			})
		}
	}
}

// TestStore_logsNoErrors: the server's log has no errors if nothing is wrong.
func TestStore_logsNoErrors(t *testing.T) {
	t.Parallel()
	noErrors := tracer{statement: func([]any) {}, ended: func(err error) { assert.Empty(t, code(err)) }}
	store := newStore(t, newPool(t, postgrestest.Open(t), func(c *pgxpool.Config) { c.ConnConfig.Tracer = noErrors }))
	claim := newClaim("key")
	claim.Lease, claim.Takeover = time.Microsecond, idempotency.Reexecute
	dead := acquire(t, store, claim)
	_, tx := begin(t, store, "key")
	busy, _, err := store.Begin(t.Context(), newClaim("key"), 0)
	require.NoError(t, err)
	assert.Equal(t, idempotency.DecisionInProgress, busy.Decision)
	reserved, err := store.Reserve(t.Context(), newClaim("key"))
	require.NoError(t, err)
	assert.Equal(t, idempotency.DecisionInProgress, reserved.Decision)
	require.NoError(t, tx.Commit(t.Context(), completed))
	require.ErrorIs(t, store.Renew(t.Context(), dead, time.Hour), idempotency.ErrLeaseLost)
	require.ErrorIs(t, store.Complete(t.Context(), dead, completed), idempotency.ErrLeaseLost)
	require.ErrorIs(t, store.Release(t.Context(), dead), idempotency.ErrLeaseLost)
	_, tx = begin(t, store, "rejected")
	require.NoError(t, tx.RollbackAndRecord(t.Context(), completed))
}

// TestTransaction_workEndsSQLTx has the work end its *sql.Tx, which ends only the work's
// access to the transaction.
func TestTransaction_workEndsSQLTx(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Open(t)
	store, count := flavors[1].store(t, dsn), effects(t, dsn)
	work := map[string]func(tx *sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback}
	for name, end := range map[string]struct {
		end    func(tx idempotency.Transaction) error
		want   error
		status idempotency.Status
	}{
		"Commit: an error, rolled back":           {commit, sql.ErrTxDone, 0},
		"RollbackAndRecord: the record alone":     {recordAlone, nil, idempotency.Completed},
		"Rollback: rolled back, without a record": {rollBack, nil, 0},
	} {
		for call, f := range work {
			key := call + ", then " + name
			t.Run(key, func(t *testing.T) {
				t.Parallel()
				record, tx := begin(t, store, key)
				require.NoError(t, insert(t.Context(), tx.Value(), key))
				assert.Equal(t, call == "Commit", f(tx.Value().(*sql.Tx)) != nil, "Commit says that it commits nothing")
				err := end.end(tx)
				require.ErrorIs(t, err, end.want)
				require.Equal(t, end.want != nil, errors.Is(err, idempotency.ErrUncommittable))
				require.NotErrorIs(t, err, idempotency.ErrUnknown)
				wantRows(t, count, key, 0)
				if end.status == 0 {
					absent(t, store, record.ID)
				} else {
					assert.Equal(t, end.status, statusOf(t, store, record.ID))
				}
			})
		}
	}
}

// TestTransaction_workSendsCommit has the work end the transaction by a statement, and
// perhaps begin another, in which the record would be alone. The result is unknown.
func TestTransaction_workSendsCommit(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		count := effects(t, dsn)
		for _, statement := range []string{"COMMIT", "COMMIT AND CHAIN", "ROLLBACK", "ROLLBACK AND CHAIN"} {
			for name, end := range map[string]func(tx idempotency.Transaction) error{"and succeeds": commit, "and fails": rollBack} {
				name = statement + " " + name
				record, tx := begin(t, store, name)
				require.NoError(t, insert(t.Context(), tx.Value(), name))
				require.NoError(t, execute(tx.Value(), statement))
				err := end(tx)
				n, e := count(t.Context(), name)
				require.NoError(t, e)
				assert.Equal(t, strings.HasPrefix(statement, "COMMIT"), n == 1, name)
				assert.ErrorIs(t, err, idempotency.ErrUnknown, name)
				absent(t, store, record.ID)
			}
		}
	})
}

func TestTransaction_workLeavesRowsOpen(t *testing.T) {
	store := flavors[0].store(t, postgrestest.Open(t))
	for name, end := range map[string]func(tx idempotency.Transaction) error{"Commit": commit, "RollbackAndRecord": recordAlone} {
		record, tx := begin(t, store, name)
		tx.Value().(pgx.Tx).QueryRow(t.Context(), "SELECT 1") // and no Scan
		err := end(tx)
		require.ErrorIs(t, err, idempotency.ErrUncommittable)
		require.ErrorContains(t, err, "rows open")
		absent(t, store, record.ID)
	}
}

// anyTx returns the transaction of either kind of store.
func anyTx(ctx context.Context) (any, error) {
	if tx, err := idempotency.Tx[pgx.Tx](ctx); err == nil {
		return tx, nil
	}
	return idempotency.Tx[*sql.Tx](ctx)
}

func execute(tx any, statement string) (err error) {
	switch tx := tx.(type) {
	case pgx.Tx:
		_, err = tx.Exec(context.Background(), statement)
	case *sql.Tx:
		_, err = tx.ExecContext(context.Background(), statement)
	}
	return err
}

// TestTransaction_closesWorkTx: the work's pgx.Tx and its savepoints are closed with the
// transaction, because another operation uses the connection after that.
func TestTransaction_closesWorkTx(t *testing.T) {
	dsn := postgrestest.Open(t)
	count := effects(t, dsn)
	pool := newPool(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 })
	store := newStore(t, pool)
	ctx := t.Context()

	_, tx := begin(t, store, "key")
	work, ok := tx.Value().(pgx.Tx)
	require.True(t, ok)
	require.ErrorContains(t, work.Commit(ctx), "not the work")
	require.Error(t, work.Rollback(ctx), "not by the work")
	undone, err := work.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, insert(ctx, undone, "undone"))
	require.NoError(t, undone.Rollback(ctx))
	done, err := work.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, insert(ctx, done, "done"))
	require.NoError(t, done.Commit(ctx))
	open, err := work.Begin(ctx)
	require.NoError(t, err)
	inner, err := open.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, insert(ctx, inner, "done"))
	require.NoError(t, tx.Commit(ctx, completed))

	for name, leftover := range map[string]pgx.Tx{"the transaction": work, "a savepoint": open, "one in one": inner} {
		assert.ErrorIs(t, insert(ctx, leftover, "late"), pgx.ErrTxClosed, name)
		assert.ErrorIs(t, leftover.Rollback(ctx), pgx.ErrTxClosed, "%s: as a deferred Rollback expects", name)
		assert.ErrorIs(t, errOf(leftover.Begin(ctx)), pgx.ErrTxClosed, name)
	}
	for id, want := range map[string]int{"undone": 0, "done": 2, "late": 0} {
		wantRows(t, count, id, want)
	}
	assert.EqualValues(t, 0, pool.Stat().AcquiredConns())
}

// TestTransaction_contextEnded: Rollback returns a usable connection even if the context
// has ended, and a transaction outlives the context of Begin.
func TestTransaction_contextEnded(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, _ string, store *pgstore.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := rollBackLate(t, store, "late")
		for try := 2; err != nil && try <= 3; try++ { // it has a second, and a machine may stall
			err = rollBackLate(t, store, fmt.Sprint("late ", try))
		}
		require.NoError(t, err)

		_, tx := begin(t, store, "key")
		require.ErrorIs(t, tx.Commit(ctx, completed), context.Canceled)
		require.NoError(t, tx.Rollback(ctx))
		_, _, err = store.Begin(ctx, newClaim("key"), 0)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// rollBackLate calls Rollback after the end of Begin's context.
func rollBackLate(t *testing.T, store *pgstore.Store, key string) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	_, tx, err := store.Begin(ctx, newClaim(key), 0)
	require.NoError(t, err)
	cancel()
	require.NoError(t, execute(tx.Value(), `SELECT 1`))
	return tx.Rollback(ctx)
}

// TestStore_poolOfOne has transactional work use the only connection. Writes of leases use the
// reserved connection. TestClaim_poolInUse has the claims, which are rejected.
func TestStore_poolOfOne(t *testing.T) {
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			dsn := postgrestest.Open(t)
			store := poolOf(t, 1, f.name, dsn)
			lease := acquire(t, store, newClaim("leased"))
			done := acquire(t, store, newClaim("done"))
			undone := acquire(t, store, newClaim("undone"))
			died := newClaim("died")
			died.Lease = time.Microsecond
			acquire(t, store, died)
			_, tx := begin(t, store, "key")
			atOnce(20, func(int) { assert.NoError(t, store.Renew(context.Background(), lease, time.Hour)) })
			require.NoError(t, store.Complete(t.Context(), done, completed))
			require.NoError(t, store.Release(t.Context(), undone))
			reaped, err := store.Reap(t.Context(), 10)
			require.NoError(t, err)
			assert.Len(t, reaped, 1)
			require.ErrorIs(t, store.Renew(t.Context(), done, time.Hour), idempotency.ErrLeaseLost)
			looking := newPool(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 })
			assert.EventuallyWithT(t, func(c *assert.CollectT) {
				var n int
				err := looking.QueryRow(context.Background(), `SELECT count(*) FROM pg_stat_activity
					WHERE application_name = current_setting('application_name') AND pid <> pg_backend_pid()`).Scan(&n)
				require.NoError(c, err)
				assert.Equal(c, 1, n, "the reserved connection is closed")
			}, patience, 20*time.Millisecond)

			waiting := make(chan error, 1)
			go func() {
				waiting <- storetest.WhileBusy(context.Background(), func() error {
					return errOf(store.Reserve(context.Background(), newClaim("other")))
				})
			}()
			require.NoError(t, tx.Commit(t.Context(), completed))
			require.NoError(t, <-waiting)
		})
	}
}

// TestCommit_serializationFailure: of two transactions that conflict, one fails with 40001,
// and nothing of it is committed.
func TestCommit_serializationFailure(t *testing.T) {
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			dsn := postgrestest.Open(t)
			count := effects(t, dsn)
			f.options = &pgstore.Options{Isolation: sql.LevelSerializable}
			store := f.store(t, dsn)
			record1, tx1 := begin(t, store, "1")
			record2, tx2 := begin(t, store, "2")
			// Each reads what the other writes.
			for _, tx := range []any{tx1.Value(), tx2.Value()} {
				require.NoError(t, execute(tx, `SELECT count(*) FROM effects`))
			}
			require.NoError(t, insert(t.Context(), tx1.Value(), "1"))
			require.NoError(t, insert(t.Context(), tx2.Value(), "2"))
			require.NoError(t, tx1.Commit(t.Context(), completed))
			err := tx2.Commit(t.Context(), completed)
			assert.Equal(t, "40001", code(err))
			require.ErrorIs(t, err, idempotency.ErrTransactionFailed, "it is known that nothing was written")
			require.NotErrorIs(t, err, idempotency.ErrUncommittable)

			assert.Equal(t, idempotency.Completed, statusOf(t, store, record1.ID))
			absent(t, store, record2.ID)
			wantRows(t, count, "2", 0)
			_, again := begin(t, store, "2")
			require.NoError(t, again.Commit(t.Context(), completed))
		})
	}
}
