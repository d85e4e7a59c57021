package pgstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
)

// D2: an outcome is stored without reading the intent, in a batch and alone. The outcome of a
// fenced worker changes nothing, is journalled once, and makes no dead letter. The results are
// those of a store that reads.
func TestSettle(t *testing.T) {
	t.Parallel()
	terms := &durable.Terms{KeyTTL: time.Hour, VisibilityDelay: time.Minute}
	again := durable.Decision{Action: durable.Retry, At: time.Now().Add(time.Hour)}
	bury := durable.Decision{Action: durable.Bury, Reason: "enough"}
	leave := func(t *testing.T, s *Store, e *durable.Event) {
		t.Helper()
		require.NoError(t, errOf(s.Heartbeat(t.Context(), e.Worker, 0)))
		require.NoError(t, errOf(s.Reap(t.Context(), 10)))
	}
	claimOne := func(t *testing.T, s *Store) durable.Record {
		t.Helper()
		c := claimOf("w")
		c.Gateways["psp"] = durable.Allowance{Terms: *terms, Limit: 100, PerScope: 100}
		claimed, err := s.Claim(t.Context(), c)
		require.NoError(t, err)
		require.Len(t, claimed.Changes, 1)
		return claimed.Changes[0].Record
	}
	rows := []struct {
		name     string
		outcome  durable.Outcome
		decision durable.Decision
		before   func(t *testing.T, s *Store, e *durable.Event) // after the claim
		twice    bool

		err     error
		state   durable.State
		letters int
	}{
		{name: "done", outcome: durable.Outcome{Class: durable.ClassSucceeded, Code: "ok", Reference: "ch_1", Status: 201, Result: []byte("r")}, state: durable.StateDone},
		{name: "failed", outcome: durable.Outcome{Class: durable.ClassFailed, Code: "busy", Status: 429, Err: errors.New("e")}, decision: again, state: durable.StateWaiting},
		{name: "unknown", outcome: durable.Outcome{Err: context.DeadlineExceeded}, decision: again, state: durable.StateUnknown},
		{name: "refused", outcome: durable.Outcome{Class: durable.ClassDeclined, Code: "no"}, decision: bury, state: durable.StateDead, letters: 1},
		{name: "twice in a batch", outcome: durable.Outcome{Class: durable.ClassDeclined}, decision: bury, twice: true, state: durable.StateDead, letters: 1},
		{
			name: "stored before", outcome: durable.Outcome{Class: durable.ClassDeclined}, decision: bury,
			before: func(t *testing.T, s *Store, e *durable.Event) {
				require.NoError(t, each(s.Apply(t.Context(), []durable.Event{*e})))
			},
			err: durable.ErrFenced, state: durable.StateDead, letters: 1,
		},
		{
			name: "reaped", outcome: durable.Outcome{Class: durable.ClassDeclined}, decision: bury, before: leave,
			err: durable.ErrFenced, state: durable.StateUnknown,
		},
		{
			name: "reaped, and claimed again", outcome: durable.Outcome{Class: durable.ClassSucceeded},
			before: func(t *testing.T, s *Store, e *durable.Event) {
				leave(t, s, e)
				claimOne(t, s)
			},
			err: durable.ErrFenced, state: durable.StateSending,
		},
		{
			name: "swept", outcome: durable.Outcome{Class: durable.ClassSucceeded},
			before: func(t *testing.T, s *Store, e *durable.Event) {
				require.NoError(t, each(s.Apply(t.Context(), []durable.Event{*e})))
				require.NoError(t, errOf(s.db.pool.Exec(t.Context(), "UPDATE durable_intent SET updated = updated - interval '1 day'")))
				n, err := s.Sweep(t.Context(), time.Hour, 10)
				require.NoError(t, err)
				require.Equal(t, 1, n)
			},
			err: durable.ErrNotFound,
		},
	}
	for _, row := range rows {
		for _, reads := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reads %v", row.name, reads), func(t *testing.T) {
				t.Parallel()
				s := openInternal(t)
				require.NoError(t, each(s.Apply(t.Context(), []durable.Event{enqueue("a", "k")})))
				held := claimOne(t, s)
				e := durable.Event{
					Kind: durable.EventFinish, Intent: durable.Intent{ID: held.ID}, Worker: "w", Generation: held.Generation,
					Terms: terms, Outcome: row.outcome, Decision: row.decision,
				}
				if !reads {
					e.Held = &held
				}
				if row.before != nil {
					row.before(t, s, &e)
				}
				events := []durable.Event{e}
				if row.twice {
					events = append(events, e)
				}
				results, err := s.Apply(t.Context(), events)
				require.NoError(t, err)
				require.Len(t, results, len(events))
				require.ErrorIs(t, results[0].Err, row.err)
				assert.Equal(t, row.state.String(), results[0].Record.State.String())
				if row.twice {
					require.ErrorIs(t, results[1].Err, durable.ErrFenced)
				}
				if !errors.Is(row.err, durable.ErrNotFound) {
					settledLikeItSays(t, s, &results[0])
				}
				assert.Equal(t, row.letters, s.count(t, "durable_letter"))
				checkBooks(t, s)
			})
		}
	}
}

// settledLikeItSays: what was answered is what is there.
func settledLikeItSays(t *testing.T, s *Store, result *durable.Result) {
	t.Helper()
	record, err := s.Find(t.Context(), result.Record.ID)
	require.NoError(t, err)
	want := result.Record
	if want.State != durable.StateDone {
		want.Result = record.Result
	}
	want.Payload, want.NotBefore = record.Payload, record.NotBefore
	assert.Equal(t, want, record)
	attempts, err := s.Attempts(t.Context(), result.Record.ID)
	require.NoError(t, err)
	if ended := result.FinishedAttempt; ended != nil {
		got := attempts[len(attempts)-1]
		assert.Equal(t, durable.IdempotencyKey(record.ID, ended.Epoch), got.Key)
		ended.Kind, ended.Key, ended.Worker, ended.SentAt = got.Kind, got.Key, got.Worker, got.SentAt
		ended.Epoch = got.Epoch
		assert.Equal(t, *ended, got)
	}
}
