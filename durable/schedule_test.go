package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

func TestSchedule(t *testing.T) {
	const wait = time.Minute
	of := func(class durable.Class) durable.History {
		return durable.History{
			Outcome: durable.Outcome{Class: class}, InDoubt: class == durable.ClassUnknown,
			Attempts: 1, Tries: 1, Since: epoch.Add(-time.Hour),
		}
	}
	later := epoch.Add(wait)
	for _, row := range []struct {
		name   string
		class  durable.Class
		change func(h *durable.History, s *durable.Schedule)
		want   durable.Decision
	}{
		{"failed", durable.ClassFailed, nil, durable.Decision{Action: durable.Retry, At: later}},
		{"declined: dead", durable.ClassDeclined, nil, durable.Decision{Action: durable.Bury, Reason: durable.ReasonDeclined}},
		{"unknown", durable.ClassUnknown, nil, durable.Decision{Action: durable.Retry, At: later}},
		{"a Retry-After", durable.ClassFailed, func(h *durable.History, _ *durable.Schedule) { h.Outcome.NotBefore = epoch.Add(time.Hour) }, durable.Decision{Action: durable.Retry, At: later.Add(time.Hour)}},
		{"a Retry-After in the past", durable.ClassFailed, func(h *durable.History, _ *durable.Schedule) { h.Outcome.NotBefore = epoch.Add(-time.Hour) }, durable.Decision{Action: durable.Retry, At: later}},
		{"an outage of many sends: retried", durable.ClassFailed, func(h *durable.History, _ *durable.Schedule) { h.Attempts = 1000 }, durable.Decision{Action: durable.Retry, At: later}},
		{"an unknown outcome after many sends: sent again", durable.ClassUnknown, func(h *durable.History, _ *durable.Schedule) { h.Attempts = 1000 }, durable.Decision{Action: durable.Retry, At: later}},
		{"D19: a Retry-After does not delay a status query", durable.ClassUnknown, func(h *durable.History, _ *durable.Schedule) {
			h.WasQuery, h.CanQuery, h.Outcome.NotBefore = true, true, epoch.Add(time.Hour)
		}, durable.Decision{Action: durable.Query, At: later}},
		{"what was not sent is not counted", durable.ClassFailed, func(h *durable.History, _ *durable.Schedule) { h.Tries = 100 }, durable.Decision{Action: durable.Retry, At: later}},
		{"a status query without a result", durable.ClassUnknown, func(h *durable.History, _ *durable.Schedule) { h.WasQuery, h.CanQuery = true, true }, durable.Decision{Action: durable.Query, At: later}},
		{"too old", durable.ClassFailed, func(h *durable.History, _ *durable.Schedule) { h.Since = epoch.Add(-72 * time.Hour) }, durable.Decision{Action: durable.Bury, Reason: durable.ReasonExhausted}},
		{"not too old yet", durable.ClassFailed, func(h *durable.History, _ *durable.Schedule) { h.Since = later.Add(-72 * time.Hour) }, durable.Decision{Action: durable.Retry, At: later}},
		{"too old, unknown, asked", durable.ClassUnknown, func(h *durable.History, _ *durable.Schedule) {
			h.Since, h.WasQuery, h.CanQuery = epoch.Add(-72*time.Hour), true, true
		}, durable.Decision{Action: durable.Bury, Reason: durable.ReasonUnresolved}},
		{"no bounds", durable.ClassFailed, func(h *durable.History, s *durable.Schedule) {
			h.Since, h.Attempts = time.Time{}.Add(time.Hour), 1e9
			s.MaxAttempts, s.MaxAge = -1, -1
		}, durable.Decision{Action: durable.Retry, At: later}},
		{"a Backoff below nothing", durable.ClassFailed, func(_ *durable.History, s *durable.Schedule) {
			s.Backoff = func(int, time.Duration) time.Duration { return -time.Hour }
		}, durable.Decision{Action: durable.Retry, At: epoch}},
		{"a Backoff beyond all", durable.ClassFailed, func(_ *durable.History, s *durable.Schedule) {
			s.Backoff, s.MaxAge = resilienthttp.Constant(1<<63-1), -1
		}, durable.Decision{Action: durable.Retry, At: epoch.Add(30 * 24 * time.Hour)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			h, s := of(row.class), durable.Schedule{Backoff: resilienthttp.Constant(wait)}
			if row.change != nil {
				row.change(&h, &s)
			}
			assert.Equal(t, row.want, s.Next(&h, epoch))
		})
	}
}

// D15: only declines count, however many attempts there were.
func TestCardDeclines(t *testing.T) {
	const day = 24 * time.Hour
	for _, row := range []struct {
		code     string
		attempts int
		age      time.Duration
		wait     time.Duration // 0: buried
		reason   string
	}{
		{"24", 1, 0, time.Hour, ""},
		{"24", 14, 0, time.Hour, ""},
		{"24", 15, 0, 0, durable.ReasonExhausted},
		{"25", 1, 0, day, ""},
		{"26", 1, 0, 2 * day, ""},
		{"27", 1, 0, 4 * day, ""},
		{"28", 1, 0, 6 * day, ""},
		{"29", 1, 0, 8 * day, ""},
		{"30", 1, 0, 10 * day, ""},
		{"30", 2, 20 * day, 0, durable.ReasonExhausted},
		{"03", 1, 0, 0, durable.ReasonDeclined},
		{"21", 1, 0, 0, durable.ReasonDeclined},
		{"", 1, 0, 0, durable.ReasonDeclined},
		{"card_declined", 1, 0, 0, durable.ReasonDeclined},
	} {
		t.Run(row.code, func(t *testing.T) {
			got := durable.CardDeclines().Next(&durable.History{
				Outcome: durable.Outcome{Class: durable.ClassDeclined, Code: row.code}, Attempts: 1000, Declines: row.attempts, Since: epoch.Add(-row.age),
			}, epoch)
			if row.wait == 0 {
				assert.Equal(t, durable.Decision{Action: durable.Bury, Reason: row.reason}, got)
				return
			}
			assert.Equal(t, durable.Retry, got.Action)
			assert.GreaterOrEqual(t, got.At.Sub(epoch), row.wait, "jitter only adds")
			assert.LessOrEqual(t, got.At.Sub(epoch), row.wait+row.wait/10)
		})
	}
	t.Run("each attempt has its own wait", func(t *testing.T) {
		p := durable.Declines{ByCode: map[string]durable.Rule{"soft": {After: []time.Duration{time.Minute, time.Hour}}}}
		for attempts, want := range map[int]time.Duration{1: time.Minute, 2: time.Hour, 3: time.Hour} {
			got := p.Next(&durable.History{Outcome: durable.Outcome{Class: durable.ClassDeclined, Code: "soft"}, Attempts: 1000, Declines: attempts, Since: epoch}, epoch)
			assert.InDelta(t, want.Seconds()*1.05, got.At.Sub(epoch).Seconds(), want.Seconds()*.05+1)
		}
	})
	t.Run("unknown: the Schedule decides", func(t *testing.T) {
		got := durable.CardDeclines().Next(&durable.History{Outcome: durable.Outcome{Code: "03"}, InDoubt: true, Attempts: 1, Since: epoch}, epoch)
		assert.Equal(t, durable.Retry, got.Action)
	})
}

// D15: an outage that ends just before MaxAge leaves nothing
// dead, and one that is longer leaves the intent dead after MaxAge and not before.
func TestSchedule_spansItsMaxAge(t *testing.T) {
	const day = 24 * time.Hour
	for _, row := range []struct {
		name   string
		policy durable.Policy
		age    time.Duration
	}{
		{"Schedule{}: 72 h", durable.Schedule{}, 3 * day},
		{"CardDeclines(): 30 d", durable.CardDeclines(), 30 * day},
	} {
		for _, class := range []durable.Class{durable.ClassFailed, durable.ClassUnknown} {
			for _, outage := range []time.Duration{17 * time.Minute, row.age / 2, row.age - 2*time.Hour, row.age + 2*time.Hour} {
				bubble.Run(t, fmt.Sprint(row.name, ", ", class, ", an outage of ", outage), func(t *testing.T) {
					began := time.Now()
					gateway := gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
						if time.Since(began) < outage {
							return durable.Outcome{Class: class, Code: "down"}
						}
						return durable.Outcome{Class: durable.ClassSucceeded}
					})
					e := through(gateway)
					e.Policy, e.KeyTTL, e.Retention, e.PollInterval = row.policy, 100*day, -1, 10*time.Minute
					e.LeaseDuration = time.Hour // the heartbeats of a month
					in := enqueuePay(t, e)
					running(t, e)
					time.Sleep(outage + 90*time.Minute)
					record := find(t, e, in.ID)
					if outage < row.age {
						require.Equal(t, durable.StateDone, record.State, "%s after %d sends", record.Reason, record.Attempts)
						return
					}
					require.Equal(t, durable.StateDead, record.State)
					assert.Greater(t, record.UpdatedAt.Sub(began), row.age-time.Hour, "dead too early")
				})
			}
		}
	}
}
