//go:build linux

package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

// TestReadOnly_handler: another process cannot write to the database. It answers
// duplicates with the stored result, and new keys with 503 without calling the work.
func TestReadOnly_handler(t *testing.T) {
	for _, row := range []struct {
		name, child string
		before      func(t *testing.T, store *sqlitestore.Store, path string)
		want        string // of a new key
	}{
		{"a file and a directory without write permission", "unwritable", func(t *testing.T, _ *sqlitestore.Store, path string) {
			t.Helper()
			dir := filepath.Dir(path)
			require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
			for _, suffix := range []string{"", "-wal", "-shm"} {
				require.NoError(t, os.Chmod(path+suffix, 0o444))
			}
			require.NoError(t, os.Chmod(dir, 0o555))
			t.Cleanup(func() { assert.NoError(t, os.Chmod(dir, 0o755)) })
		}, fmt.Sprint("SQLite error ", sqlite3.SQLITE_READONLY)},
		{"a full disk", "full", nil, fmt.Sprint("SQLite error ", sqlite3.SQLITE_IOERR)},
		{"another process has the write lock", "locked", func(t *testing.T, store *sqlitestore.Store, _ string) {
			t.Helper()
			tx, err := store.DB().Begin()
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, tx.Rollback()) })
		}, "store busy"},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			store := open(t, path)
			require.Equal(t, http.StatusCreated, post(newHandler(store, false, nil), "done").Code)
			if row.before != nil {
				row.before(t, store, path)
			}
			c := startChild(t, row.child, path)
			for _, mode := range []string{"non-transactional", "transactional"} {
				assert.Equal(t, mode+": done: 201 the result, replayed true", c.line(t))
				assert.Equal(t, mode+": new: 503, work called 0 times: "+row.want, c.line(t))
			}
			assert.Equal(t, "check: <nil>", c.line(t))
			if row.child == "full" {
				assert.Equal(t, "with space again: 201, work called 1 times", c.line(t))
			}
			require.NoError(t, c.Wait())
		})
	}
}

var _ = func() bool {
	children["unwritable"] = func(ctx context.Context, path string) error {
		if os.Geteuid() == 0 { // root may write to every file
			if err := syscall.Setuid(65534); err != nil {
				return err
			}
		}
		return ask(ctx, path, nil)
	}
	children["full"] = func(ctx context.Context, path string) error {
		signal.Ignore(syscall.SIGXFSZ)
		if err := limitFiles(0); err != nil {
			return err
		}
		return ask(ctx, path, func(store *sqlitestore.Store) error {
			err := limitFiles(^uint64(0))
			called := 0
			calls = &called
			answer := post(newHandler(store, true, nil), "new")
			fmt.Printf("with space again: %d, work called %d times\n", answer.Code, called)
			return err
		})
	}
	children["locked"] = func(ctx context.Context, path string) error { return ask(ctx, path, nil) }
	return true
}()

// ask prints the answers to a duplicate and to a new key, in both modes.
func ask(ctx context.Context, path string, after func(*sqlitestore.Store) error) error {
	store, err := sqlitestore.Options{BusyTimeout: 50 * time.Millisecond}.Open(ctx, path)
	if err != nil {
		return err
	}
	for _, mode := range []string{"non-transactional", "transactional"} {
		var failed error
		trace := &idempotency.Trace{Done: func(e *idempotency.Event) { failed = e.Err }}
		h := newHandler(store, mode == "transactional", trace)
		done := post(h, "done")
		fmt.Printf("%s: done: %d %s, replayed %v\n", mode, done.Code, strings.TrimSpace(done.Body.String()),
			done.Header().Get("Idempotency-Replayed") != "")
		kind := fmt.Sprint(failed)
		var e *sqlite.Error
		called := 0
		h = newHandler(store, mode == "transactional", trace)
		calls = &called
		answer := post(h, "new")
		switch {
		case errors.Is(failed, idempotency.ErrStoreBusy):
			kind = "store busy"
		case errors.As(failed, &e):
			kind = fmt.Sprint("SQLite error ", e.Code()&0xff)
		}
		fmt.Printf("%s: new: %d, work called %d times: %s\n", mode, answer.Code, called, kind)
	}
	fmt.Println("check:", store.Check(ctx))
	if after != nil {
		err = after(store)
	}
	return errors.Join(err, store.Close())
}

// calls counts how often the work of newHandler was called; nil: it is not counted.
var calls *int

func newHandler(store idempotency.Store, transactional bool, trace *idempotency.Trace) *idempotency.Handler {
	h := idempotency.NewHandler(store, func(*http.Request) (string, error) { return "", nil },
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if calls != nil {
				*calls++
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintln(w, "the result")
		}))
	h.Transactional, h.Trace = transactional, trace
	return h
}

func post(h http.Handler, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/charges", nil)
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
