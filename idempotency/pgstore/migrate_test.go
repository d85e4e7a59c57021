package pgstore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/postgrestest"
)

// Many processes come up at once, on an empty database. Whatever its isolation, each
// finds the tables when it is its turn.
func TestManyMigrateAtOnce(t *testing.T) {
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
						_, err = store.Reserve(context.Background(), newClaim(idempotency.NewOwner()))
						assert.NoError(t, err)
					}
				})
				var versions int
				require.NoError(t, newPool(t, dsn, nil).QueryRow(t.Context(), `SELECT count(*) FROM idempotency_records_version`).Scan(&versions))
				assert.Equal(t, 1, versions)
			})
		}
	}
}

func TestSchemaOfAnotherVersion(t *testing.T) {
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			dsn := postgrestest.Open(t)
			pool := newPool(t, dsn, nil)
			check := &pgstore.Options{NoMigration: true}

			_, err := f.open(t, dsn, check)
			require.ErrorIs(t, err, pgstore.ErrSchema)
			assert.ErrorContains(t, err, "run Migrate")
			require.NoError(t, pgstore.Migrate(t.Context(), pool, check))
			_, err = f.open(t, dsn, check)
			require.NoError(t, err)

			_, err = pool.Exec(t.Context(), `INSERT INTO idempotency_records_version (version, oldest) VALUES (999, 1)`)
			require.NoError(t, err)
			for _, options := range []*pgstore.Options{nil, check} {
				_, err = f.open(t, dsn, options)
				require.NoError(t, err, "a newer one that this one can work with")
			}
			_, err = pool.Exec(t.Context(), `INSERT INTO idempotency_records_version (version, oldest) VALUES (1000, 2)`)
			require.NoError(t, err)
			for _, options := range []*pgstore.Options{nil, check} {
				_, err = f.open(t, dsn, options)
				require.ErrorIs(t, err, pgstore.ErrSchema)
				assert.ErrorContains(t, err, "newer")
			}
			require.ErrorIs(t, pgstore.Migrate(t.Context(), pool, nil), pgstore.ErrSchema)
		})
	}
}

// Names are quoted, whatever they are.
func TestNamesOfTables(t *testing.T) {
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			dsn := postgrestest.Open(t)
			pool := newPool(t, dsn, nil)
			var own string
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT current_schema()`).Scan(&own))
			quoted := `x"; DROP 'Schema' \` + own
			t.Cleanup(func() {
				_, err := pool.Exec(context.Background(), `DROP SCHEMA "`+strings.ReplaceAll(quoted, `"`, `""`)+`" CASCADE`)
				assert.NoError(t, err)
			})
			for _, options := range []*pgstore.Options{
				nil,
				{Table: "other"},
				{Table: `it's "Quoted" ; -- ` + strings.Repeat("é", 14)},
				{Schema: quoted},
				{Schema: own, Table: "in the search path"},
			} {
				for range 2 { // the second time the tables are there
					store, err := f.open(t, dsn, options)
					require.NoError(t, err)
					_, err = store.Load(t.Context(), newClaim("key").ID)
					if err == nil {
						continue
					}
					require.ErrorIs(t, err, idempotency.ErrNotFound, "they have nothing to do with each other")
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
				_, err := f.open(t, dsn, options)
				assert.ErrorIs(t, err, idempotency.ErrInvalid)
			}
		})
	}
}
