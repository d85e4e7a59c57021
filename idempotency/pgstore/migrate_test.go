package pgstore_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// TestNew_concurrent starts many processes at once, on an empty database of each default
// isolation.
func TestNew_concurrent(t *testing.T) {
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		for _, f := range flavors {
			t.Run(isolation+"/"+f.name, func(t *testing.T) {
				dsn := withParameter(t, postgrestest.Open(t), "default_transaction_isolation", "'"+isolation+"'")
				if strings.Contains(dsn, "://") {
					dsn = strings.NewReplacer("'"+isolation+"'", strings.ReplaceAll(isolation, " ", "%20")).Replace(dsn)
				}
				atOnce(10, func(int) {
					store, err := f.open(t, dsn, nil)
					if assert.NoError(t, err) {
						assert.NoError(t, errOf(store.Reserve(context.Background(), newClaim(rand.Text()))))
					}
				})
				var versions int
				require.NoError(t, newPool(t, dsn, nil).QueryRow(t.Context(), `SELECT count(*) FROM idempotency_records_version`).Scan(&versions))
				assert.Equal(t, 2, versions)
			})
		}
	}
}

func TestNew_quotesNames(t *testing.T) {
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			dsn := postgrestest.Open(t)
			pool := newPool(t, dsn, nil)
			var own string
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT current_schema()`).Scan(&own))
			quoted := `x"; DROP 'Schema' \` + own
			t.Cleanup(func() {
				assert.NoError(t, errOf(pool.Exec(context.Background(), `DROP SCHEMA "`+strings.ReplaceAll(quoted, `"`, `""`)+`" CASCADE`)))
			})
			for _, options := range []*pgstore.Options{
				nil,
				{Table: "other"},
				{Table: `it's "Quoted" ; -- ` + strings.Repeat("é", 14)},
				{Schema: quoted},
				{Schema: own, Table: "in the search path"},
			} {
				for range 2 { // the second time the tables exist
					store, err := f.open(t, dsn, options)
					require.NoError(t, err)
					_, err = store.Load(t.Context(), newClaim("key").ID)
					if err == nil {
						continue
					}
					require.ErrorIs(t, err, idempotency.ErrNotFound, "stores of different names share nothing")
					record, tx := begin(t, store, "key")
					require.NoError(t, tx.Commit(t.Context(), completed))
					assert.Equal(t, idempotency.Completed, statusOf(t, store, record.ID))
				}
			}
			for _, options := range []*pgstore.Options{
				{Table: strings.Repeat("x", 51)},
				{Table: "x\x00"},
				{Schema: "\xff"},
				{Schema: strings.Repeat("x", 64)},
				{Isolation: 7},
			} {
				assert.ErrorIs(t, errOf(f.open(t, dsn, options)), idempotency.ErrInvalid)
			}
		})
	}
}

// TestStore_leastPrivileges needs only the rights of the package comment, if another
// program makes the tables.
func TestStore_leastPrivileges(t *testing.T) {
	dsn := postgrestest.Open(t)
	admin := newPool(t, dsn, nil)
	_ = newStore(t, admin)
	_ = effects(t, dsn)
	var role string
	require.NoError(t, admin.QueryRow(t.Context(), `SELECT current_schema() || '_service'`).Scan(&role))
	for _, statement := range []string{
		`CREATE ROLE service LOGIN`,
		`GRANT USAGE ON SCHEMA "schema" TO service`,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_records TO service`,
		`GRANT SELECT ON idempotency_records_version TO service`,
		`GRANT INSERT ON effects TO service`,
	} {
		statement = strings.NewReplacer("service", role, `"schema"`, strings.TrimSuffix(role, "_service")).Replace(statement)
		require.NoError(t, errOf(admin.Exec(t.Context(), statement)), statement)
	}
	t.Cleanup(func() {
		assert.NoError(t, errOf(admin.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role, pgx.QueryExecModeSimpleProtocol)))
	})
	pool := newPool(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.User = role })
	store, err := pgstore.New(t.Context(), pool, &pgstore.Options{NoMigration: true})
	require.NoError(t, err)
	for _, makes := range []bool{false, true} { // the tables exist: reading suffices
		require.NoError(t, errOf(pgstore.New(t.Context(), pool, &pgstore.Options{NoMigration: !makes})))
	}

	ctx := t.Context()
	for _, end := range ends {
		_, tx := begin(t, store, rand.Text())
		require.NoError(t, insert(ctx, tx.Value(), "row"))
		require.NoError(t, end(tx))
	}
	lease := acquire(t, store, newClaim("key"))
	require.NoError(t, store.Renew(ctx, lease, time.Hour))
	require.NoError(t, store.Release(ctx, lease))
	_, tx := begin(t, store, "key") // supersedes
	require.NoError(t, tx.Commit(ctx, completed))
	dead := newClaim("dead")
	dead.Lease = time.Microsecond
	acquire(t, store, dead)
	require.NoError(t, errOf(store.Reap(ctx, 10)))
	for record, err := range store.Unknown(ctx, "") {
		require.NoError(t, err)
		require.NoError(t, store.Complete(ctx, record.Lease(), completed))
	}
	require.NoError(t, errOf(store.Sweep(ctx, 10)))
}
