package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/chaos"
)

// The test binary is also the program of the services and the bank.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == serveCommand || os.Args[1] == bank.Command) {
		main()
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "2"); err != nil { // each run has processes of its own
		panic(err)
	}
	os.Exit(m.Run())
}

// Each charge is in the ledger exactly once, or declined, and its client knows. The full runs are
// the program's own.
func TestPayments_bookEachChargeOnce(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ database, faults string }{
		{chaos.SQLite, "wire"},
		{chaos.Postgres, "wire,backends,postmaster"},
		{chaos.Postgres, "wire,backends,pgbouncer"},
	} {
		for _, mode := range modes[paymentsApp] {
			t.Run(row.database+" "+mode+" "+row.faults, func(t *testing.T) {
				t.Parallel()
				r := check(t, "-app", paymentsApp, "-orders", "80", "-kills", "5", "-stops", "1", "-strikes", "2",
					"-db", row.database, "-mode", mode, "-faults", row.faults)
				assert.Positive(t, r.figure("stored responses"))
				assert.Greater(t, r.client.attempts.Load(), int64(r.orders), "attempts")
				if mode == nonTransactional {
					known := r.figure("became unknown, and the bank had booked them") + r.figure("became unknown, and the bank had not booked them")
					assert.Positive(t, known, "records that were unknown and reconciled")
				}
			})
		}
	}
}

// Each order is charged exactly once or declined, and the shop knows the result.
func TestDurable_chargesEachOrderOnce(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ database, mode, faults string }{
		{chaos.SQLite, keys, ""},
		{chaos.SQLite, asks, "wire"},
		{chaos.Postgres, keys, "backends,postmaster"},
		{chaos.Postgres, asks, "pgbouncer,postmaster"},
	} {
		t.Run(row.database+" "+row.mode, func(t *testing.T) {
			t.Parallel()
			r := check(t, "-app", durableApp, "-orders", "250", "-kills", "6", "-stops", "1", "-strikes", "1", "-outage", "12s",
				"-db", row.database, "-mode", row.mode, "-faults", row.faults)
			assert.Positive(t, r.audit.canceled, "canceled orders")
			assert.Positive(t, r.figure("sends with unknown result"))
			assert.Positive(t, r.figure("further keys after declines"))
			assert.Positive(t, r.figure("decisions of the operator"))
			assert.Positive(t, r.figure("decisions that came too late"))
			assert.Equal(t, row.mode == asks, r.figure("status queries") > 0, "status queries")
			assert.GreaterOrEqual(t, r.figure("workers that the poison killed"), poisonKills)
			assert.Positive(t, r.figure("attempts of suspects, alone"))
		})
	}
}

// Each order is charged exactly once or declined, although the database's clock is set forward and back.
func TestDurable_clock(t *testing.T) {
	t.Parallel()
	for _, mode := range modes[durableApp] {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			check(t, "-app", durableApp, "-orders", "150", "-kills", "0", "-stops", "0", "-strikes", "8", "-outage", "2s",
				"-db", chaos.Postgres, "-mode", mode, "-faults", chaos.Clock)
		})
	}
}

// check runs the only scenario of the arguments, and returns its result.
func check(t *testing.T, args ...string) *run {
	t.Helper()
	all, err := parse(args)
	require.NoError(t, err)
	require.Len(t, all, 1)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, log.Close()) }()
	s := all[0]
	s.log = log
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
	assert.Equal(t, s.Counts(), r.struck, "without the faults the run proves nothing")
	assert.Positive(t, r.audit.declined, "declined orders")
	return r
}

func (r *run) figure(name string) int {
	i := slices.IndexFunc(r.figures, func(f figure) bool { return f.name == name })
	return r.figures[i].n
}
