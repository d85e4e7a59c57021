package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
)

// The test binary is the program of the service and of the bank too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == serveCommand || os.Args[1] == bank.Command) {
		main()
		return
	}
	os.Exit(m.Run())
}

// Each charge is in the ledger exactly once, or declined, and its client knows. The
// full run is the program's own.
func TestRun_booksEachChargeOnce(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		database string
		faults   []string
	}{
		{chaos.SQLite, []string{"wire", "disk"}},
		{chaos.SQLite, []string{"readonly"}},
		{chaos.Postgres, []string{"readonly"}},
		{chaos.Postgres, []string{"wire", "backends", "postmaster"}},
		{chaos.Postgres, []string{"wire", "backends", "pgbouncer"}},
	} {
		for _, mode := range []string{transactional, nonTransactional} {
			t.Run(strings.Join(append([]string{row.database, mode}, row.faults...), " "), func(t *testing.T) {
				t.Parallel()
				all, err := parse([]string{
					"-charges", "80", "-kills", "3", "-stops", "1", "-strikes", "2",
					"-db", row.database, "-mode", mode, "-faults", strings.Join(row.faults, ","),
				})
				require.NoError(t, err)
				check(t, all[0])
			})
		}
	}
}

func check(t *testing.T, s scenario) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	s.log = log
	defer func() { assert.NoError(t, log.Close()) }()
	var out strings.Builder
	r, err := s.run(t.Context(), &out)
	if err == nil {
		r.print(&out)
		t.Log("\n" + out.String())
		err = r.verdict()
	}
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("%v\n%s", err, text[max(0, len(text)-20_000):])
	}

	// Without the faults the run proves nothing.
	assert.Equal(t, s.Kills, r.struck["kill"])
	assert.Equal(t, s.Stops, r.struck["stop"])
	for _, f := range s.Faults {
		assert.Equal(t, s.Strikes, r.struck[f.Name()], f.Name())
	}
	assert.Positive(t, r.client.replayed.Load(), "stored responses")
	assert.Greater(t, r.client.attempts.Load(), int64(s.charges), "attempts")
	assert.Positive(t, r.declined, "declined orders")
	if s.mode == nonTransactional {
		assert.Positive(t, r.booked+r.none, "records that were unknown and reconciled")
	}
}
