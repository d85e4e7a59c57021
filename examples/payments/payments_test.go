package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The test binary is the service and the bank, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == serveCommand || os.Args[1] == bankCommand) {
		main()
		return
	}
	os.Exit(m.Run())
}

// Whatever breaks, each charge is in the ledger exactly once, or refused, and its
// client knows. The whole of it is the program's own run.
func TestEachChargeIsBookedExactlyOnce(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		database string
		faults   []string
	}{
		{sqlite, []string{"wire", "disk"}},
		{postgres, []string{"wire", "backends", "postmaster"}},
		{postgres, []string{"wire", "backends", "pgbouncer"}},
	} {
		for _, mode := range []string{joined, detached} {
			t.Run(strings.Join(append([]string{row.database, mode}, row.faults...), " "), func(t *testing.T) {
				t.Parallel()
				faults, err := faultsNamed(row.faults)
				require.NoError(t, err)
				check(t, scenario{
					charges: 80, kills: 3, stops: 1, strikes: 2, workers: 16, processes: 3,
					database: row.database, mode: mode, faults: faults, seed: 1,
				})
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
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("%v\n%s", err, said[max(0, len(said)-20_000):])
	}

	// It proves nothing unless the way there was as bad as promised.
	assert.Equal(t, s.kills, r.struck["kill"])
	assert.Equal(t, s.stops, r.struck["stop"])
	for _, f := range s.faults {
		assert.Equal(t, s.strikes, r.struck[f.name()], f.name())
	}
	assert.Positive(t, r.client.replayed.Load(), "answers that were lost, and given again")
	assert.Greater(t, r.client.attempts.Load(), int64(s.charges), "attempts")
	assert.Positive(t, r.refused, "orders that were not covered")
	if s.mode == detached {
		assert.Positive(t, r.booked+r.none, "records that were unknown, and were settled")
	}
}
