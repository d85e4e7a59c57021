//go:build linux

package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

// TestBegin_writesFail: in another process, the operating system fails a write at each
// kilobyte of the write-ahead log, with SQLITE_IOERR, or SQLITE_FULL after a short
// write. The record agrees with the work.
func TestBegin_writesFail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	ledger(t, open(t, path).DB())
	c := startChild(t, "limited", path)
	failures, err := strconv.Atoi(c.line(t))
	require.NoError(t, err)
	assert.Greater(t, failures, 10)
	t.Logf("%d failures", failures)
	require.NoError(t, c.Wait())
	store := open(t, path)
	for i := range limitedSteps {
		key := strconv.Itoa(i)
		requireRows(t, store.DB(), key, 1)
		assert.Equal(t, "done", decisionOf(t, store, claimOf(key)))
	}
}

const limitedSteps = 30

var _ = func() bool { children["limited"] = limited; return true }()

// limited works under a limit of file sizes, which grows by a kilobyte each time, and
// after a failure checks the record.
func limited(ctx context.Context, path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	store, err := sqlitestore.Open(ctx, path)
	if err != nil {
		return err
	}
	if err := chargeOnce(ctx, store, "first", false); err != nil {
		return err
	}
	failures := 0
	for i := range limitedSteps {
		info, err := os.Stat(path + "-wal")
		if err != nil {
			return err
		}
		key := strconv.Itoa(i)
		if err := limitFiles(uint64(info.Size()) + uint64(i)<<10); err != nil {
			return err
		}
		failure := chargeOnce(ctx, store, key, i%2 == 1)
		if err := limitFiles(^uint64(0)); err != nil {
			return err
		}
		if failure == nil {
			continue
		}
		failures++
		if _, ok := errors.AsType[*sqlite.Error](failure); !ok {
			return fmt.Errorf("want an error of SQLite, got: %w", failure)
		}
		rows, err := count(ctx, store.DB(), key)
		if err != nil || rows > 0 {
			return fmt.Errorf("%d rows of what has failed, %w", rows, err)
		}
		if err := chargeOnce(ctx, store, key, false); err != nil {
			return fmt.Errorf("with space again: %w", err)
		}
	}
	fmt.Println(failures)
	return store.Close()
}

// chargeOnce is transactional work. After a failed write it rolls back, or tries to
// commit if stubborn is true.
func chargeOnce(ctx context.Context, store *sqlitestore.Store, key string, stubborn bool) error {
	reservation, tx, err := store.Begin(ctx, claimOf(key), 0)
	if err != nil {
		return err
	}
	if reservation.Decision != idempotency.DecisionAcquired {
		return errors.New(reservation.Decision.String())
	}
	if err := write(ctx, tx.Value(), key); err != nil && !stubborn {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Commit(ctx, completed)
}

func limitFiles(size uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = min(size, limit.Max)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}
