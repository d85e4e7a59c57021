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

// The test binary is also the program of the shop and the bank.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == shopCommand || os.Args[1] == bank.Command) {
		main()
		return
	}
	os.Exit(m.Run())
}

// Each order is charged exactly once or declined, and the shop knows the result. The run of the
// program is five times as long.
func TestRun_chargesEachOrderOnce(t *testing.T) {
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
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("%v\n%s", err, text[max(0, len(text)-20_000):])
	}

	// The test is valid only if each fault has occurred.
	assert.Equal(t, s.Kills, r.struck["kill"])
	assert.Equal(t, s.Stops, r.struck["stop"])
	if s.Database == chaos.Postgres {
		assert.Equal(t, s.Crashes, r.struck["crash"])
	}
	for _, f := range s.Faults {
		assert.Equal(t, s.Strikes, r.struck[f.Name()], f.Name())
	}
	assert.Positive(t, r.unknownSends, "sends with unknown result")
	assert.Positive(t, r.keys, "declines")
	assert.Positive(t, r.decided, "decisions with effect")
	assert.Positive(t, r.stale, "decisions that came too late")
	assert.Positive(t, r.declined, "orders that were not covered")
	assert.Equal(t, s.mode == asks, r.queries > 0, "status queries")
}

// attemptLines matches an attempt with unknown result and the attempts after it. On a busy machine
// the lease of a worker may expire although it is alive, and the charge is sent once more.
var attemptLines = regexp.MustCompile(`(attempt \d+, key eb08a093…: send, (unknown|failed): .+\n)+attempt \d+, key eb08a093…: send, succeeded\n`)

func TestRunDemo_output(t *testing.T) {
	t.Parallel()
	for _, database := range []string{chaos.SQLite, chaos.Postgres} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			require.NoError(t, command(t.Context(), []string{"-db", database}, &out))
			output := out.String()
			attempts := attemptLines.FindString(output)
			assert.Contains(t, attempts, "key eb08a093…: send, unknown: the worker died, or sent no heartbeat for a lease\n")
			assert.Equal(t, `A customer cancels acme:invoice-1-canceled during the transaction. The shop rolls back: there is no order and no intent.
Another customer orders acme:invoice-1, 129.01 EUR. The shop writes the order and the intent to charge it in one transaction.
The shop sends the charge. The bank books it. Before the response arrives, the shop gets kill -9.
State of the intent: sending.
The shop starts again. After the lease of 1s the result of the attempt is unknown.
The shop sends the charge again with the same key. The bank replays its first response.
State of the intent: done.

`+attempts+`bank ledger: acme:invoice-1, 129.01 EUR
Charged once.
`, output)
		})
	}
}

// Ten rows, of which two are declined and one is invalid. After their correction the second import
// sends three, and the third none.
func TestRunImport_sendsCorrectedRowsOnly(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "invoices.csv"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "invoices.csv")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	run := func() (output string, rows []string) {
		t.Helper()
		var out strings.Builder
		require.NoError(t, command(t.Context(), []string{"-import", path}, &out))
		file, err := os.Open(path)
		require.NoError(t, err)
		defer func() { assert.NoError(t, file.Close()) }()
		lines, err := csv.NewReader(file).ReadAll()
		require.NoError(t, err)
		for _, line := range lines {
			line[4] = strings.TrimRight(line[4], "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") // a random ID
			rows = append(rows, strings.TrimRight(strings.Join(line, "|"), "|"))
		}
		return out.String(), rows
	}

	output, rows := run()
	assert.Equal(t, "10 rows: 9 accepted, 1 invalid\nsent to the bank: 9\nnow: 1 in progress, 6 done, 2 declined, 1 invalid\n", output)
	assert.Equal(t, []string{
		"invoice|customer|amount|status|reference|code|text",
		"2026-001|Ada|129.01|done|bk_",
		"2026-002|Grace|64.50|done|bk_",
		"2026-003|Edsger|100.00|declined||03|insufficient funds",
		"2026-004|Barbara|19.99|done|bk_",
		`2026-005|Alan|12,50|invalid|||amount is "12,50", want a number such as 12.50`,
		"2026-006|Tony|75.13|in progress",
		"2026-007|Donald|250.00|declined||03|insufficient funds",
		"2026-008|Leslie|33.07|done|bk_",
		"2026-009|Niklaus|8.01|done|bk_",
		"2026-010|Frances|410.35|done|bk_",
	}, rows)

	text, err = os.ReadFile(path)
	require.NoError(t, err)
	corrected := strings.NewReplacer("100.00", "100.01", `"12,50",invalid`, "12.50,invalid", "250.00", "250.01").Replace(string(text))
	require.NoError(t, os.WriteFile(path, []byte(corrected), 0o600))
	output, rows = run()
	assert.Equal(t, "10 rows: 1 accepted, 2 revised, 1 in progress, 6 done\nsent to the bank: 3\nnow: 1 in progress, 9 done\n", output)
	assert.Equal(t, "2026-003|Edsger|100.01|done|bk_", rows[3])
	assert.Equal(t, "2026-005|Alan|12.50|done|bk_", rows[5])

	output, _ = run()
	assert.Equal(t, "10 rows: 1 in progress, 9 done\nsent to the bank: 0\nnow: 1 in progress, 9 done\n", output)
	booked, err := bank.Bookings(path + ".bank.jsonl")
	require.NoError(t, err)
	assert.Len(t, booked, 9)
}

func TestReadSheet_errors(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"empty file", "", "no header line"},
		{"no column amount", "invoice,sum\n1,2\n", `no column "amount"`},
		{"too many fields", "invoice,amount\n1,2,3,4,5,6,7\n", "row 2 has more fields"},
		{"invalid CSV", "invoice,amount\n1,\"2\n", "quote"},
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

func TestParse(t *testing.T) {
	for _, row := range []struct {
		args string
		want string // the databases and modes with their faults, or the error
	}{
		{"", "sqlite keys"},
		{"-dsn postgres://there", "postgres keys"},
		{"-chaos", "sqlite keys kill stop; sqlite asks kill stop; postgres keys kill stop crash; postgres asks kill stop crash"},
		{"-chaos -db postgres -mode asks", "postgres asks kill stop crash"},
		{"-chaos -mode keys -faults wire,disk,pgbouncer", "sqlite keys kill stop wire disk; postgres keys kill stop crash wire pgbouncer"},
		{"-chaos -faults fire", "unknown fault"},
		{"-chaos -mode both", "unknown mode"},
		{"-chaos -outage -1s", "outage is -1s"},
		{"-chaos -payments 0", "must be positive"},
		{"-chaos -kills -1", "must not be negative"},
		{"-chaos -dsn postgres://there", "-chaos excludes"},
		{"-db oracle", "unknown database"},
		{"-db sqlite,postgres", "2 databases"},
		{"-db sqlite -dsn postgres://there", "-dsn requires"},
		{"-import x.csv -db postgres", "-import requires"},
		{"surplus", "unexpected argument"},
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
