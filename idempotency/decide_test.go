package idempotency_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// TestDecide tests all combinations of the values that Decide reads. The expected results are
// rules: the first one that matches counts.
func TestDecide(t *testing.T) {
	type given struct {
		status   idempotency.Status
		lease    time.Duration // until it is over; 0: this instant
		expires  time.Duration
		same     bool                 // fingerprint
		owner    bool                 // the same
		takeover idempotency.Takeover // of the record: by its own terms an execution is taken over
	}
	dead := func(g given) bool { return g.status == idempotency.StatusInProgress && g.lease <= 0 }
	repeats := func(g given) bool { return g.takeover == idempotency.Reexecute || g.takeover == idempotency.Resume }
	type want struct {
		step idempotency.Step
		idempotency.Reservation
	}
	take := want{idempotency.StepTake, idempotency.Reservation{Decision: idempotency.DecisionAcquired}}
	resume := want{idempotency.StepTake, idempotency.Reservation{Decision: idempotency.DecisionAcquired, Resumed: true}}
	leave := func(d idempotency.Decision) want {
		return want{idempotency.StepLeave, idempotency.Reservation{Decision: d}}
	}
	rules := []struct {
		name string
		when func(g given) bool
		want want
	}{
		{"expired is absent", func(g given) bool {
			return g.expires <= 0 && (dead(g) && repeats(g) || g.status != idempotency.StatusInProgress && g.status != idempotency.Unknown)
		}, take},
		{"another request", func(g given) bool { return !g.same }, leave(idempotency.DecisionMismatch)},
		{"finished", func(g given) bool { return g.status.Finished() }, leave(idempotency.DecisionDone)},
		{"failed retryable, resumed", func(g given) bool { return g.status == idempotency.FailedRetryable && g.takeover == idempotency.Resume }, resume},
		{"failed retryable", func(g given) bool { return g.status == idempotency.FailedRetryable }, take},
		{"unknown, or of a newer version", func(g given) bool { return g.status != idempotency.StatusInProgress }, leave(idempotency.DecisionUnknown)},
		{"the same claim again", func(g given) bool { return g.owner && !dead(g) }, leave(idempotency.DecisionAcquired)},
		{"in progress", func(g given) bool { return !dead(g) }, leave(idempotency.DecisionInProgress)},
		{"executed again", func(g given) bool { return g.takeover == idempotency.Reexecute }, take},
		{"resumed", func(g given) bool { return g.takeover == idempotency.Resume }, resume},
		{"abandoned", func(given) bool { return true }, want{idempotency.StepMarkUnknown, idempotency.Reservation{Decision: idempotency.DecisionUnknown, LeaseExpired: true}}},
	}

	now := time.Date(2026, 3, 29, 1, 59, 59, 0, time.UTC)
	check := func(g given, claimant idempotency.Takeover) string {
		record := idempotency.Record{
			ID: idempotency.ID{Key: "k"}, Fingerprint: "v1:a", Status: g.status, Owner: "first", Generation: 7,
			LeaseExpires: now.Add(g.lease), Expires: now.Add(g.expires), Takeover: g.takeover,
			Result: idempotency.Result{Code: http.StatusOK},
		}
		claim := idempotency.Claim{
			ID: record.ID, Fingerprint: "v1:b", Owner: "second", Lease: 1, TTL: 1, Takeover: claimant,
		}
		if g.same {
			claim.Fingerprint = record.Fingerprint
		}
		if g.owner {
			claim.Owner = record.Owner
		}
		recordBefore, claimBefore := record, claim
		step, reservation := idempotency.Decide(&record, &claim, now)
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
	for status := range idempotency.Status(9) {
		for _, lease := range []time.Duration{-time.Hour, -1, 0, 1, time.Hour} {
			for _, expires := range []time.Duration{-time.Hour, -1, 0, 1, time.Hour} {
				for takeover := idempotency.TakeoverDefault; takeover <= idempotency.MarkUnknown; takeover++ {
					for bits := range 16 {
						g := given{status, lease, expires, bits&1 != 0, bits&2 != 0, takeover}
						used[check(g, idempotency.Takeover(bits>>2))]++
					}
				}
			}
		}
	}
	assert.Len(t, used, len(rules), "each rule decides something: %v", used)
}

func TestDecisionString(t *testing.T) {
	for decision, want := range map[idempotency.Decision]string{
		idempotency.DecisionAcquired: "acquired", idempotency.DecisionInProgress: "in_progress", idempotency.DecisionDone: "done",
		idempotency.DecisionMismatch: "mismatch", idempotency.DecisionUnknown: "unknown", 0: "invalid", 99: "invalid",
	} {
		assert.Equal(t, want, decision.String())
	}
}
