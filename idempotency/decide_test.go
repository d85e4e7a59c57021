package idempotency_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// TestDecide goes through all combinations of what Decide looks at. What is to
// come of them is written down as rules of which the first that fits counts.
func TestDecide(t *testing.T) {
	type given struct {
		status   idempotency.Status
		lease    time.Duration // until it is over; 0: this instant
		expires  time.Duration
		same     bool                 // fingerprint
		owner    bool                 // the same
		takeover idempotency.Takeover // of the record: by its own terms an execution is taken over
	}
	dead := func(g given) bool { return g.status == idempotency.InProgress && g.lease <= 0 }
	repeats := func(g given) bool { return g.takeover == idempotency.Reexecute || g.takeover == idempotency.Resume }
	type want struct {
		step idempotency.Step
		idempotency.Reservation
	}
	rules := []struct {
		name string
		when func(g given) bool
		want want
	}{
		{
			"expired is absent", func(g given) bool {
				return g.expires <= 0 && (dead(g) && repeats(g) || g.status != idempotency.InProgress && g.status != idempotency.Unknown)
			},
			want{idempotency.Take, idempotency.Reservation{Decision: idempotency.Acquired}},
		},
		{
			"another request", func(g given) bool { return !g.same },
			want{idempotency.Leave, idempotency.Reservation{Decision: idempotency.Mismatch}},
		},
		{
			"finished", func(g given) bool { return g.status.Finished() },
			want{idempotency.Leave, idempotency.Reservation{Decision: idempotency.Done}},
		},
		{
			"failed retryable, resumed", func(g given) bool {
				return g.status == idempotency.FailedRetryable && g.takeover == idempotency.Resume
			},
			want{idempotency.Take, idempotency.Reservation{Decision: idempotency.Acquired, Resumed: true}},
		},
		{
			"failed retryable", func(g given) bool { return g.status == idempotency.FailedRetryable },
			want{idempotency.Take, idempotency.Reservation{Decision: idempotency.Acquired}},
		},
		{
			"unknown, or of a newer version", func(g given) bool { return g.status != idempotency.InProgress },
			want{idempotency.Leave, idempotency.Reservation{Decision: idempotency.Undecided}},
		},
		{
			"the same claim again", func(g given) bool { return g.owner && !dead(g) },
			want{idempotency.Leave, idempotency.Reservation{Decision: idempotency.Acquired}},
		},
		{
			"in progress", func(g given) bool { return !dead(g) },
			want{idempotency.Leave, idempotency.Reservation{Decision: idempotency.Busy}},
		},
		{
			"executed again", func(g given) bool { return g.takeover == idempotency.Reexecute },
			want{idempotency.Take, idempotency.Reservation{Decision: idempotency.Acquired}},
		},
		{
			"resumed", func(g given) bool { return g.takeover == idempotency.Resume },
			want{idempotency.Take, idempotency.Reservation{Decision: idempotency.Acquired, Resumed: true}},
		},
		{
			"abandoned", func(given) bool { return true },
			want{idempotency.Abandon, idempotency.Reservation{Decision: idempotency.Undecided, Abandoned: true}},
		},
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

func TestDecideAbsent(t *testing.T) {
	step, reservation := idempotency.Decide(nil, &idempotency.Claim{}, time.Time{})
	assert.Equal(t, idempotency.Insert, step)
	assert.Equal(t, idempotency.Reservation{Decision: idempotency.Acquired}, reservation)
}

func TestExpired(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		status         idempotency.Status
		lease, expires time.Duration
		takeover       idempotency.Takeover
		want           bool
	}{
		{idempotency.Completed, 0, 1, 0, false},
		{idempotency.Completed, 0, 0, 0, true},
		{idempotency.Completed, time.Hour, -1, 0, true}, // its lease has no meaning
		{idempotency.FailedRetryable, time.Hour, -1, 0, true},
		{idempotency.FailedFinal, time.Hour, -1, 0, true},
		{idempotency.CompletedUnreplayable, time.Hour, -1, 0, true},
		{idempotency.Unknown, -time.Hour, -time.Hour, 0, false},
		{idempotency.InProgress, 1, 1, 0, false},
		{idempotency.InProgress, 1, 0, 0, false},
		{idempotency.InProgress, 0, 1, 0, false},
		{idempotency.InProgress, 0, 0, 0, false}, // it will be Unknown
		{idempotency.InProgress, 0, 0, idempotency.MarkUnknown, false},
		{idempotency.InProgress, 0, 0, idempotency.Reexecute, true},
		{idempotency.InProgress, 0, 0, idempotency.Resume, true},
		{idempotency.InProgress, 1, 0, idempotency.Reexecute, false},
		{idempotency.InProgress, 0, 1, idempotency.Reexecute, false},
	} {
		t.Run(fmt.Sprintf("%v, lease %v, TTL %v, takeover %d", row.status, row.lease, row.expires, row.takeover), func(t *testing.T) {
			record := idempotency.Record{
				Status: row.status, LeaseExpires: now.Add(row.lease), Expires: now.Add(row.expires), Takeover: row.takeover,
			}
			assert.Equal(t, row.want, record.Expired(now))
		})
	}
}

func TestDecisionString(t *testing.T) {
	for decision, want := range map[idempotency.Decision]string{
		idempotency.Acquired: "acquired", idempotency.Busy: "busy", idempotency.Done: "done",
		idempotency.Mismatch: "mismatch", idempotency.Undecided: "undecided", 0: "invalid", 99: "invalid",
	} {
		assert.Equal(t, want, decision.String())
	}
}
