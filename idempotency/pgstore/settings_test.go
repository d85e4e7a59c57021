package pgstore_test

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
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

// freeAddress returns a loopback address that is not in use. Its port is outside the range
// that the system assigns.
func freeAddress(tb testing.TB) (address, port string) {
	tb.Helper()
	for {
		port = strconv.Itoa(15_000 + rand.IntN(15_000))
		address = net.JoinHostPort("127.0.0.1", port)
		listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", address)
		if err == nil {
			require.NoError(tb, listener.Close())
			return address, port
		}
		require.NoError(tb, tb.Context().Err())
	}
}

// overTCP starts a server for the test and returns its DSN for TCP.
func overTCP(tb testing.TB) string {
	tb.Helper()
	address, port := freeAddress(tb)
	server := postgrestest.StartTB(tb)
	conn, err := pgx.Connect(tb.Context(), server.DSN())
	require.NoError(tb, err)
	for _, statement := range []string{"SET listen_addresses = '127.0.0.1'", "SET port = " + port} {
		require.NoError(tb, errOf(conn.Exec(tb.Context(), "ALTER SYSTEM "+statement)))
	}
	require.NoError(tb, conn.Close(tb.Context()))
	require.NoError(tb, server.Shutdown(tb.Context()))
	require.NoError(tb, server.Restart(tb.Context()))
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: address, Path: "/postgres", RawQuery: "sslmode=disable"}
	return u.String()
}

// TestTransactionSettings expects the server-side limits within the transaction of the
// work, and not after it. Stricter values of the session stay.
func TestTransactionSettings(t *testing.T) {
	dsn := overTCP(t)
	outside := []string{"0", "7200", "75", "0"} // the system's
	for _, row := range []struct {
		name    string
		session map[string]string
		lease   time.Duration
		limit   time.Duration
		want    []string // idle in transaction, idle, interval, user timeout
	}{
		{"30 seconds: a silence of 30 s", nil, 30 * time.Second, time.Minute, []string{"1min", "15", "5", "30000"}},
		{"shortest lease: 2 s", nil, time.Millisecond, time.Hour, []string{"1h", "1", "1", "2000"}},
		{"no time limit: idle transactions stay", nil, time.Hour, 0, []string{"0", "1800", "75", "3600000"}},
		{"ten years: PostgreSQL's maximum", nil, 10 * 365 * 24 * time.Hour, 10 * 365 * 24 * time.Hour, []string{"2147483647ms", "7200", "75", "2147483000"}},
		{
			"stricter session: keeps its values",
			map[string]string{"tcp_keepalives_idle": "3", "tcp_keepalives_interval": "1", "tcp_user_timeout": "4000"},
			30 * time.Second, time.Minute,
			[]string{"1min", "3", "1", "4000"},
		},
		{
			"less strict session: overridden",
			map[string]string{"tcp_keepalives_idle": "300", "tcp_keepalives_interval": "20", "tcp_user_timeout": "400000"},
			30 * time.Second, time.Minute,
			[]string{"1min", "15", "5", "30000"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			pool := newPool(t, dsn, func(c *pgxpool.Config) {
				c.MaxConns = 1
				maps.Copy(c.ConnConfig.RuntimeParams, row.session)
			})
			store := newStore(t, pool)
			before := bounds(t, pool)
			if row.session == nil {
				assert.Equal(t, outside, before)
			}
			claim := newClaim(crand.Text())
			claim.Lease = row.lease
			for _, end := range []func(tx idempotency.Transaction) error{rollBack, recordAlone} {
				_, tx, err := store.Begin(t.Context(), claim, row.limit)
				require.NoError(t, err)
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // or the pool does not close
				work, ok := tx.Value().(pgx.Tx)
				require.True(t, ok)
				assert.Equal(t, row.want, bounds(t, work))
				require.NoError(t, end(tx))
				assert.Equal(t, before, bounds(t, pool))
			}
			_, tx := begin(t, store, crand.Text())
			require.NoError(t, tx.Commit(t.Context(), completed))
			assert.Equal(t, before, bounds(t, pool))
		})
	}
}

// bounds returns the parameters that bound a transaction, and others.
func bounds(t *testing.T, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, others ...string,
) []string {
	t.Helper()
	var all []string
	for _, name := range append(others, "idle_in_transaction_session_timeout", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_user_timeout") {
		var value string
		require.NoError(t, db.QueryRow(t.Context(), fmt.Sprintf("SELECT current_setting('%s')", name)).Scan(&value))
		all = append(all, value)
	}
	return all
}

// TestNew_textModes: where pgx reads values as text, their form must be the default one. The error comes at once, and not at the
// first claim, which would leave its record.
func TestNew_textModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		for _, parameter := range [][2]string{{"datestyle", "ISO"}, {"datestyle", "German"}, {"datestyle", "SQL"}, {"bytea_output", "hex"}, {"bytea_output", "escape"}} {
			t.Run(mode+", "+parameter[0]+" "+parameter[1], func(t *testing.T) {
				t.Parallel()
				dsn := withParameter(t, withParameter(t, postgrestest.Open(t), "default_query_exec_mode", mode), parameter[0], parameter[1])
				store, err := pgstore.New(t.Context(), newPool(t, dsn, nil), nil)
				if (mode == "exec" || mode == "simple_protocol") && parameter[1] != "ISO" && parameter[1] != "hex" {
					require.ErrorIs(t, err, idempotency.ErrInvalid)
					require.ErrorContains(t, err, "want DateStyle ISO and bytea_output hex")
					return
				}
				require.NoError(t, err)
				require.NoError(t, store.Check(t.Context()))
				require.NoError(t, store.Complete(t.Context(), acquire(t, store, newClaim("leased")), completed))
				_, tx := begin(t, store, "transactional")
				require.NoError(t, tx.Commit(t.Context(), completed))
				for _, operation := range []string{"leased", "transactional"} {
					record, err := store.Load(t.Context(), newClaim(operation).ID)
					require.NoError(t, err)
					require.Equal(t, completed.Result, record.Result)
				}
			})
		}
	}
}
