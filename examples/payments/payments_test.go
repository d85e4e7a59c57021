package main

import (
	"os"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/postgrestest"
)

// The test binary is the service, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serveCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestEachChargeIsInTheLedgerExactlyOnce(t *testing.T) {
	for _, database := range []string{sqlite, postgres} {
		t.Run(database, func(t *testing.T) {
			if database == postgres {
				t.Setenv(postgrestest.Variable, postgrestest.Open(t))
			}
			var out strings.Builder
			s := scenario{charges: 160, kills: 8, workers: 16, database: database, seed: 1}
			r, err := s.run(t.Context(), &out)
			require.NoError(t, err)
			r.print(&out)
			t.Log("\n" + out.String())
			require.NoError(t, r.verdict())

			// It proves nothing unless the way there was as bad as promised.
			assert.Positive(t, r.client.replayed.Load(), "answers that were lost, and given again")
			assert.Positive(t, r.died, "executions that were killed in the middle")
			assert.Greater(t, r.client.attempts.Load(), int64(s.charges), "attempts")
		})
	}
}

// An audit that finds nothing wrong with anything would prove nothing either.
func TestAuditFindsWhatIsWrong(t *testing.T) {
	s := scenario{charges: 5}
	r := &result{scenario: s, client: newClient(""), receipts: make([]charge, 5), failures: make([]error, 5)}
	booked := make([]charge, 5)
	for i := range booked {
		booked[i] = charge{ID: string(rune('a' + i)), order: s.order(i)}
		r.receipts[i] = booked[i]
	}
	twice := booked[1]
	twice.ID = "again"
	r.receipts[2].ID = "another"
	r.failures[4] = assert.AnError
	stranger := charge{ID: "s", order: order{Reference: "nobody's"}}
	r.audit([]charge{booked[0], booked[1], twice, booked[2], booked[4], stranger}) // 3 is lost

	assert.Equal(t, []int{3, 1, 1, 3, 1, 1}, []int{r.once, r.doubled, r.lost, r.wrong, r.unanswered, r.strange})
	require.Error(t, r.verdict())
}
