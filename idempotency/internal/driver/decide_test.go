package driver_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
)

// TestDecide tests all combinations of the values that Decide reads. The expected results are
// rules: the first one that matches counts.
func TestDecide(t *testing.T) {
	type given struct {
		status   driver.Status
		lease    time.Duration // until it is over; 0: this instant
		expires  time.Duration
		same     bool            // fingerprint
		owner    bool            // the same
		takeover driver.Takeover // of the record: by its own terms an execution is taken over
	}
	dead := func(g given) bool { return g.status == driver.InProgress && g.lease <= 0 }
	repeats := func(g given) bool { return g.takeover == driver.Reexecute || g.takeover == driver.Resume }
	type want struct {
		step driver.Step
		driver.Reservation
	}
	take := want{driver.Take, driver.Reservation{Decision: driver.Acquired}}
	resume := want{driver.Take, driver.Reservation{Decision: driver.Acquired, Resumed: true}}
	leave := func(d driver.Decision) want { return want{driver.Leave, driver.Reservation{Decision: d}} }
	rules := []struct {
		name string
		when func(g given) bool
		want want
	}{
		{"expired is absent", func(g given) bool {
			return g.expires <= 0 && (dead(g) && repeats(g) || g.status != driver.InProgress && g.status != driver.Unknown)
		}, take},
		{"another request", func(g given) bool { return !g.same }, leave(driver.Mismatch)},
		{"finished", func(g given) bool { return g.status.Finished() }, leave(driver.Done)},
		{"failed retryable, resumed", func(g given) bool { return g.status == driver.FailedRetryable && g.takeover == driver.Resume }, resume},
		{"failed retryable", func(g given) bool { return g.status == driver.FailedRetryable }, take},
		{"unknown, or of a newer version", func(g given) bool { return g.status != driver.InProgress }, leave(driver.DecisionUnknown)},
		{"the same claim again", func(g given) bool { return g.owner && !dead(g) }, leave(driver.Acquired)},
		{"in progress", func(g given) bool { return !dead(g) }, leave(driver.DecisionInProgress)},
		{"executed again", func(g given) bool { return g.takeover == driver.Reexecute }, take},
		{"resumed", func(g given) bool { return g.takeover == driver.Resume }, resume},
		{"abandoned", func(given) bool { return true }, want{driver.StepMarkUnknown, driver.Reservation{Decision: driver.DecisionUnknown, LeaseExpired: true}}},
	}

	now := time.Date(2026, 3, 29, 1, 59, 59, 0, time.UTC)
	check := func(g given, claimant driver.Takeover) string {
		record := driver.Record{
			ID: driver.ID{Key: "k"}, Fingerprint: "v1:a", Status: g.status, Owner: "first", Generation: 7,
			LeaseExpires: now.Add(g.lease), Expires: now.Add(g.expires), Takeover: g.takeover,
			Result: driver.Result{Code: http.StatusOK},
		}
		claim := driver.Claim{
			ID: record.ID, Fingerprint: "v1:b", Owner: "second", Lease: 1, TTL: 1, Takeover: claimant,
		}
		if g.same {
			claim.Fingerprint = record.Fingerprint
		}
		if g.owner {
			claim.Owner = record.Owner
		}
		recordBefore, claimBefore := record, claim
		step, reservation := driver.Decide(&record, &claim, now)
		assert.Equal(t, recordBefore, record, "the record has changed")
		assert.Equal(t, claimBefore, claim, "the claim has changed")
		for _, rule := range rules {
			if rule.when(g) {
				assert.Equal(t, rule.want, want{step, reservation}, "%s: %+v", rule.name, g)
				return rule.name
			}
		}
		return ""
	}

	used := make(map[string]int)
	for status := range driver.Status(9) {
		for _, lease := range []time.Duration{-time.Hour, -1, 0, 1, time.Hour} {
			for _, expires := range []time.Duration{-time.Hour, -1, 0, 1, time.Hour} {
				for takeover := driver.TakeoverDefault; takeover <= driver.MarkUnknown; takeover++ {
					for bits := range 16 {
						g := given{status, lease, expires, bits&1 != 0, bits&2 != 0, takeover}
						used[check(g, driver.Takeover(bits>>2))]++
					}
				}
			}
		}
	}
	assert.Len(t, used, len(rules), "each rule decides something: %v", used)
}

func TestDecisionString(t *testing.T) {
	for decision, want := range map[driver.Decision]string{
		driver.Acquired: "acquired", driver.DecisionInProgress: "in_progress", driver.Done: "done",
		driver.Mismatch: "mismatch", driver.DecisionUnknown: "unknown", 0: "invalid", 99: "invalid",
	} {
		assert.Equal(t, want, decision.String())
	}
}
