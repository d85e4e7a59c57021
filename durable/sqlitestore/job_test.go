package sqlitestore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
)

// D22: a job with 20,000 dead letters finishes, whichever process works a page.
func TestJob_redrivesMany(t *testing.T) {
	s := openInternal(t)
	_, err := s.DB().Exec(`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 3999)
		INSERT INTO durable_intent (scope, operation, key, gateway, fingerprint, state, epoch, generation, worker, next_at, later,
			attempts, tries, doubt, ask, class, code, reference, reason, letter, since, batch, row, created, updated, payload)
		SELECT 'a', 'o', i, 'psp', 'f', 6, 1, 1, '', i, 0, 1, 1, 0, 0, 2, '', '', 'declined', 1, i, '', 0, i, i, x'' FROM n`)
	require.NoError(t, err)
	_, err = s.DB().Exec(`INSERT INTO durable_letter (intent, n, gateway, batch, row, reason, class, code, doubt, attempts, dead_at, "by", note)
		SELECT id, 1, gateway, '', 0, 'declined', 2, '', 0, 1, created, '', '' FROM durable_intent`)
	require.NoError(t, err)
	count := func(from string) (n int) {
		require.NoError(t, s.DB().QueryRow("SELECT count(*) FROM "+from).Scan(&n))
		return n
	}
	job, err := s.AddJob(t.Context(), driver.Job{PerSecond: 1000})
	require.NoError(t, err)
	began, pages := time.Now(), 0
	for ; job.FinishedAt.IsZero(); pages++ {
		job, _, err = s.WorkJob(t.Context(), 200)
		require.NoError(t, err)
	}
	t.Logf("%d pages in %v", pages, time.Since(began))
	assert.Equal(t, 21, pages)
	assert.Equal(t, 4000, job.Redriven)
	assert.Zero(t, job.Skipped)
	assert.Equal(t, 4000, count(`durable_intent WHERE state = 1 AND letter = 0`))
	assert.Equal(t, 0, count(`durable_letter WHERE redriven_at IS NULL`))
}
