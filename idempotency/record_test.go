package idempotency_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// TestStatus: numbers and names do not change. Numbers are stored, and names are in dashboards.
func TestStatus(t *testing.T) {
	for _, row := range []struct {
		status   idempotency.Status
		number   uint8
		name     string
		finished bool
	}{
		{0, 0, "invalid", false},
		{idempotency.StatusInProgress, 1, "in_progress", false},
		{idempotency.Completed, 2, "completed", true},
		{idempotency.FailedRetryable, 3, "failed_retryable", false},
		{idempotency.FailedFinal, 4, "failed_final", true},
		{idempotency.CompletedUnreplayable, 5, "completed_unreplayable", true},
		{idempotency.Unknown, 6, "unknown", false},
		{7, 7, "invalid", false},
		{255, 255, "invalid", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.number, uint8(row.status))
			assert.Equal(t, row.name, row.status.String())
			assert.Equal(t, row.finished, row.status.Finished())
		})
	}
}

// TestKeyFor: the key depends on the ID and the call, and on nothing else.
func TestKeyFor(t *testing.T) {
	id := idempotency.ID{Scope: "comp1", Operation: "charge", Key: "invoice:001"}
	const key = "b4394f3bfbf3545b4622c8b1bac994da9f2a568f"
	assert.Equal(t, key, id.KeyFor("capture"), "it must never change: other services store it")
	seen := map[string]string{}
	for name, made := range map[string]string{
		"itself":            id.KeyFor("capture"),
		"another call":      id.KeyFor("refund"),
		"no call":           id.KeyFor(""),
		"another tenant":    (&idempotency.ID{Scope: "comp2", Operation: "charge", Key: "invoice:001"}).KeyFor("capture"),
		"another operation": (&idempotency.ID{Scope: "comp1", Operation: "refund", Key: "invoice:001"}).KeyFor("capture"),
		"another key":       (&idempotency.ID{Scope: "comp1", Operation: "charge", Key: "invoice:002"}).KeyFor("capture"),
		"split elsewhere":   (&idempotency.ID{Scope: "comp1c", Operation: "harge", Key: "invoice:001"}).KeyFor("capture"),
	} {
		assert.Len(t, made, 40)
		assert.Empty(t, seen[made], name)
		seen[made] = name
	}
}
