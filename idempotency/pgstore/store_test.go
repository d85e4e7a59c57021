package pgstore_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/storetest"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			dsn := postgrestest.Open(t)
			suite(t, dsn, f).Run(t)
		})
	}
}

// TestStore_serializableDefault: the database's default isolation does not matter for the
// store's statements. The work is read committed, because the suite does not execute it
// again after a serialization failure.
func TestStore_serializableDefault(t *testing.T) {
	t.Parallel()
	f := flavors[0]
	f.options = &pgstore.Options{Isolation: sql.LevelReadCommitted}
	suite(t, withParameter(t, postgrestest.Open(t), "default_transaction_isolation", "serializable"), f).Run(t)
}

func suite(t *testing.T, dsn string, f flavor) storetest.Suite {
	t.Helper()
	return storetest.Suite{
		Open:  func(t *testing.T) driver.Store { return f.store(t, dsn) },
		Again: func(t *testing.T) driver.Store { return f.store(t, dsn) },
		Write: insert,
		Count: effects(t, dsn),
	}
}

// fill writes completed records that have expired.
func fill(ctx context.Context, pool *pgxpool.Pool, rows int) error {
	_, err := pool.Exec(ctx, `INSERT INTO idempotency_records (scope, operation, key, fingerprint, status, owner, generation,
			takeover, started, updated, expires, code, header, body)
		SELECT 'fill', 'POST /charges', 'key ' || gen_random_uuid(), 'v1:a', 2, 'owner', 1,
			0, now() - interval '2 hours', now() - interval '2 hours',
			now() - interval '1 hour' + i * interval '1 millisecond', 201, '{}', '\x00'
		FROM generate_series(1, $1) AS i`, rows)
	return err
}
