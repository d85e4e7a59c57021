package main

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
)

// The test binary is the shop and the bank, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == shopCommand || os.Args[1] == bank.Command) {
		main()
		return
	}
	os.Exit(m.Run())
}

// Whatever dies, each order is charged for exactly once, or refused, and the shop knows.
// This is a fifth of the program's own run.
func TestEachOrderIsChargedExactlyOnce(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ database, mode, faults string }{
		{chaos.SQLite, keys, ""},
		{chaos.SQLite, asks, "disk"},
		{chaos.Postgres, keys, "backends"},
		{chaos.Postgres, asks, "pgbouncer"},
	} {
		t.Run(row.database+" "+row.mode, func(t *testing.T) {
			t.Parallel()
			o, err := parse([]string{
				"-chaos", "-payments", "400", "-kills", "10", "-stops", "1", "-crashes", "1", "-strikes", "1", "-outage", "12s",
				"-db", row.database, "-mode", row.mode, "-faults", row.faults,
			})
			require.NoError(t, err)
			check(t, &o.scenarios[0])
		})
	}
}

func check(t *testing.T, s *scenario) {
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
	assert.Equal(t, s.Kills, r.struck["kill"])
	assert.Equal(t, s.Stops, r.struck["stop"])
	if s.Database == chaos.Postgres {
		assert.Equal(t, s.Crashes, r.struck["crash"])
	}
	for _, f := range s.Faults {
		assert.Equal(t, s.Strikes, r.struck[f.Name()], f.Name())
	}
	assert.Positive(t, r.doubts, "sends of which nobody knew what became")
	assert.Positive(t, r.keys, "declines")
	assert.Positive(t, r.decided, "decisions of a person")
	assert.Positive(t, r.stale, "decisions that came too late")
	assert.Positive(t, r.refused, "orders that were not covered")
	assert.Equal(t, s.mode == asks, r.questions > 0, "questions")
}

// again is an attempt of which nobody knew in time, and those after it: where the machine is
// busy a worker may not be heard of for a lease though it lives, or learn of its claim when
// the lease is about to end, and it is sent once more.
var again = regexp.MustCompile(`(attempt \d+, key eb08a093…: send, (unknown|failed): .+\n)+attempt \d+, key eb08a093…: send, succeeded\n`)

// What the program shows by itself, line by line.
func TestDemo(t *testing.T) {
	t.Parallel()
	for _, database := range []string{chaos.SQLite, chaos.Postgres} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			require.NoError(t, command(t.Context(), []string{"-db", database}, &out))
			said := out.String()
			attempts := again.FindString(said)
			assert.Contains(t, attempts, "key eb08a093…: send, unknown: the worker died, or was not heard of for a lease\n")
			assert.Equal(t, `A customer gives up acme:invoice-1-given-up in the middle. The shop rolls back: there is neither an order nor a charge.
Another orders acme:invoice-1, 129.01 EUR. The shop writes the order and its charge in one transaction.
The shop sends the charge. The bank has booked it, and before it can say so the shop gets kill -9.
In the books: the charge is sending.
The shop starts again. The dead process may be alive for a lease of 1s. Then nobody knows what it has done,
and the charge is sent again, under the same key. The bank knows the key, and says what it said before.
In the books: the charge is done.

`+attempts+`the bank's ledger: acme:invoice-1, 129.01 EUR
Charged once.
`, said)
		})
	}
}

// Ten rows, of which two are refused and one is invalid: when these are mended three are
// sent, and then none.
func TestImport(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "invoices.csv"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "invoices.csv")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	run := func() (said string, rows []string) {
		t.Helper()
		var out strings.Builder
		require.NoError(t, command(t.Context(), []string{"-import", path}, &out))
		file, err := os.Open(path)
		require.NoError(t, err)
		defer func() { assert.NoError(t, file.Close()) }()
		lines, err := csv.NewReader(file).ReadAll()
		require.NoError(t, err)
		for _, line := range lines {
			line[4] = strings.TrimRight(line[4], "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") // a random name
			rows = append(rows, strings.TrimRight(strings.Join(line, "|"), "|"))
		}
		return out.String(), rows
	}

	said, rows := run()
	assert.Equal(t, "10 rows: 9 accepted, 1 invalid\nsent to the bank: 9\nnow: 1 in progress, 6 done, 2 declined, 1 invalid\n", said)
	assert.Equal(t, []string{
		"invoice|customer|amount|status|reference|code|text",
		"2026-001|Ada|129.01|done|bk_",
		"2026-002|Grace|64.50|done|bk_",
		"2026-003|Edsger|100.00|declined||03|the account does not cover it",
		"2026-004|Barbara|19.99|done|bk_",
		`2026-005|Alan|12,50|invalid|||"12,50" is no amount, such as 12.50`,
		"2026-006|Tony|75.13|in progress",
		"2026-007|Donald|250.00|declined||03|the account does not cover it",
		"2026-008|Leslie|33.07|done|bk_",
		"2026-009|Niklaus|8.01|done|bk_",
		"2026-010|Frances|410.35|done|bk_",
	}, rows)

	text, err = os.ReadFile(path)
	require.NoError(t, err)
	mended := strings.NewReplacer("100.00", "100.01", `"12,50",invalid`, "12.50,invalid", "250.00", "250.01").Replace(string(text))
	require.NoError(t, os.WriteFile(path, []byte(mended), 0o600))
	said, rows = run()
	assert.Equal(t, "10 rows: 1 accepted, 2 revised, 1 in progress, 6 done\nsent to the bank: 3\nnow: 1 in progress, 9 done\n", said)
	assert.Equal(t, "2026-003|Edsger|100.01|done|bk_", rows[3])
	assert.Equal(t, "2026-005|Alan|12.50|done|bk_", rows[5])

	said, _ = run()
	assert.Equal(t, "10 rows: 1 in progress, 9 done\nsent to the bank: 0\nnow: 1 in progress, 9 done\n", said)
	booked, err := bank.Bookings(path + ".bank.jsonl")
	require.NoError(t, err)
	assert.Len(t, booked, 9)
}

func TestSheets(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"empty", "", "no line of names"},
		{"no amounts", "invoice,sum\n1,2\n", `no column "amount"`},
		{"a field too many", "invoice,amount\n1,2,3,4,5,6,7\n", "row 2 has more fields"},
		{"no values", "invoice,amount\n1,\"2\n", "quote"},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "sheet.csv")
			require.NoError(t, os.WriteFile(path, []byte(row.text), 0o600))
			assert.ErrorContains(t, command(t.Context(), []string{"-import", path}, new(strings.Builder)), row.want)
			left, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, row.text, string(left))
		})
	}
	for amount, want := range map[string]int64{
		"12.50": 1250, "12.5": 1250, "12": 1200, "0.07": 7, "12.": 1200, "": 0, ".5": 0, "-1": 0, "0": 0, "1.234": 0, "1e3": 0, "12,50": 0, "99999999999999": 0,
	} {
		got, err := cents(amount)
		assert.Equal(t, want, got, amount)
		assert.Equal(t, want == 0, err != nil, amount)
	}
}

func TestArguments(t *testing.T) {
	for _, row := range []struct {
		args string
		want string // the databases and modes, with the faults that befall them
	}{
		{"", "sqlite keys"},
		{"-dsn postgres://there", "postgres keys"},
		{"-chaos", "sqlite keys kill stop; sqlite asks kill stop; postgres keys kill stop crash; postgres asks kill stop crash"},
		{"-chaos -db postgres -mode asks", "postgres asks kill stop crash"},
		{"-chaos -mode keys -faults wire,disk,pgbouncer", "sqlite keys kill stop wire disk; postgres keys kill stop crash wire pgbouncer"},
		{"-chaos -faults fire", "there is no fault"},
		{"-chaos -mode both", "there is no mode"},
		{"-chaos -outage -1s", "an outage of -1s"},
		{"-chaos -payments 0", "there must be payments"},
		{"-chaos -kills -1", "less than never"},
		{"-chaos -dsn postgres://there", "books of its own"},
		{"-db oracle", "there is no database"},
		{"-db sqlite,postgres", "2 databases"},
		{"-db sqlite -dsn postgres://there", "that of a PostgreSQL server"},
		{"-import x.csv -db postgres", "or a -dsn"},
		{"surplus", "what is"},
	} {
		t.Run(row.args, func(t *testing.T) {
			o, err := parse(strings.Fields(row.args))
			if err != nil {
				assert.ErrorContains(t, err, row.want)
				return
			}
			var got []string
			for _, s := range o.scenarios {
				text := s.Database + " " + s.mode
				if o.chaos {
					s.Kills, s.Stops, s.Crashes, s.Strikes = 1, 1, 1, 1
					for _, f := range s.List() {
						text += " " + f.Name()
					}
				}
				got = append(got, text)
			}
			require.Equal(t, row.want, strings.Join(got, "; "))
		})
	}
}
