package durable_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

var (
	id    = idempotency.ID{Scope: "comp1", Operation: "POST /charges", Key: "invoice:001"}
	epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	terms = durable.Terms{KeyTTL: 24 * time.Hour, VisibilityDelay: 15 * time.Minute, CanQuery: true}
	blind = durable.Terms{KeyTTL: 24 * time.Hour, VisibilityDelay: 15 * time.Minute}
)

// inState is a record in a state, an hour after it was sent first, if it was.
func inState(state durable.State, doubt bool) durable.Record {
	in := durable.Intent{ID: id, Gateway: "psp", Payload: []byte("pay")}
	r := durable.Record{
		Intent: in, Fingerprint: in.Fingerprint(), State: state, Epoch: 1, InDoubt: doubt,
		CreatedAt: epoch.Add(-time.Hour), UpdatedAt: epoch.Add(-time.Hour), RetryWindowStart: epoch.Add(-time.Hour), NextAt: epoch,
	}
	if state != durable.StatePending {
		r.Generation, r.Attempts, r.FirstSentAt, r.LastSentAt = 1, 1, epoch.Add(-time.Hour), epoch.Add(-time.Hour)
		r.ClaimedAt = epoch.Add(-time.Minute)
	}
	if state.Held() {
		r.Worker = "w"
	}
	if state == durable.StateDead {
		r.DeadLetterID, r.Reason, r.Class = 1, durable.ReasonDeclined, durable.ClassDeclined
	}
	return r
}

func event(kind durable.EventKind) durable.Event {
	e := durable.Event{Kind: kind, Intent: durable.Intent{ID: id}, Worker: "w", Generation: 1, Terms: &terms, By: "ann"}
	if kind == durable.EventRedrive || kind == durable.EventResolve {
		e.Generation = 0 // whatever was seen
	}
	return e
}

// sawn is an event of a person who saw the intent so.
func sawn(e durable.Event, generation, letter int64) durable.Event {
	e.Generation, e.DeadLetterID = generation, letter
	return e
}

func finish(class durable.Class, do durable.Action) durable.Event {
	e := event(durable.EventFinish)
	e.Outcome.Class = class
	e.Decision = durable.Decision{Action: do, At: epoch.Add(time.Minute)}
	return e
}

func resolve(class durable.Class) durable.Event {
	e := event(durable.EventResolve)
	e.Outcome.Class = class
	return e
}

// D14: eight states times all events. Where a name of a state stands the event leads
// there, "=" is a move that writes nothing, and the rest are errors, which write
// nothing either.
func TestDecideTable(t *testing.T) {
	same := event(durable.EventEnqueue)
	same.Intent = inState(durable.StatePending, false).Intent
	other := same
	other.Intent.Payload = []byte("other")
	stray := event(durable.EventClaim)
	stray.Terms = nil
	mute := event(durable.EventClaim)
	mute.Terms = &durable.Terms{}
	foreign := finish(durable.ClassSucceeded, durable.Retry)
	foreign.Worker = "x"
	early := finish(durable.ClassSucceeded, durable.Retry)
	early.Generation = 0

	stolen := event(durable.EventLeaseExpired)
	stolen.Worker = "x"

	columns := "absent pending waiting sending sending? querying? unknown? done dead dead? cancelled"
	states := map[string]durable.State{}
	for state := durable.StatePending; state <= durable.StateCancelled; state++ {
		states[state.String()] = state
	}
	for _, row := range []struct {
		name  string
		event durable.Event
		want  string // in the order of columns; "?": in doubt
	}{
		//                                                                     absent    pending   waiting   sending  sending? querying?  unknown?  done     dead     dead?    cancelled
		{"enqueue the same", same, "                                            pending   =         =         =        =        =        =         =        =        =        ="},
		{"enqueue another", other, "                                            pending   mismatch  mismatch  mismatch mismatch mismatch mismatch  mismatch waiting  mismatch mismatch"},
		{"claim", event(durable.EventClaim), "                                  notfound  sending   sending   state    state    state    sending?  state    state    state    state"},
		{"claim, no keys, no finder", mute, "                                   notfound  sending   sending   state    state    state    dead?     state    state    state    state"},
		{"claim, no gateway", stray, "                                          notfound  dead      dead      state    state    state    dead?     state    state    state    state"},
		{"succeeded", finish(durable.ClassSucceeded, durable.Bury), "           notfound  fenced    fenced    done     done     done     fenced    fenced   fenced   fenced   fenced"},
		{"refused, retry", finish(durable.ClassDeclined, durable.Retry), "       notfound  fenced    fenced    waiting  unknown? waiting  fenced    fenced   fenced   fenced   fenced"},
		{"refused, bury", finish(durable.ClassDeclined, durable.Bury), "         notfound  fenced    fenced    dead     unknown? dead     fenced    fenced   fenced   fenced   fenced"},
		{"failed, retry", finish(durable.ClassFailed, durable.Retry), "         notfound  fenced    fenced    waiting  unknown? unknown? fenced    fenced   fenced   fenced   fenced"},
		{"failed, ask", finish(durable.ClassFailed, durable.Query), "             notfound  fenced    fenced    waiting  unknown? unknown? fenced    fenced   fenced   fenced   fenced"},
		{"failed, bury", finish(durable.ClassFailed, durable.Bury), "           notfound  fenced    fenced    dead     dead?    dead?    fenced    fenced   fenced   fenced   fenced"},
		{"unknown, retry", finish(durable.ClassUnknown, durable.Retry), "       notfound  fenced    fenced    unknown? unknown? unknown? fenced    fenced   fenced   fenced   fenced"},
		{"unknown, bury", finish(durable.ClassUnknown, durable.Bury), "         notfound  fenced    fenced    dead?    dead?    dead?    fenced    fenced   fenced   fenced   fenced"},
		{"not found", finish(durable.ClassNotFound, durable.Retry), "           notfound  fenced    fenced    unknown? unknown? waiting  fenced    fenced   fenced   fenced   fenced"},
		{"a class of the future", finish(99, durable.Retry), "                  notfound  fenced    fenced    unknown? unknown? unknown? fenced    fenced   fenced   fenced   fenced"},
		{"another worker's", foreign, "                                         notfound  fenced    fenced    fenced   fenced   fenced   fenced    fenced   fenced   fenced   fenced"},
		{"an earlier generation's", early, "                                    notfound  fenced    fenced    fenced   fenced   fenced   fenced    fenced   fenced   fenced   fenced"},
		{"lose", event(durable.EventLeaseExpired), "                                    notfound  fenced    fenced    unknown? unknown? unknown? fenced    fenced   fenced   fenced   fenced"},
		{"lose another's", stolen, "                                            notfound  fenced    fenced    fenced   fenced   fenced   fenced    fenced   fenced   fenced   fenced"},
		{"redrive", event(durable.EventRedrive), "                              notfound  state     state     state    state    state    state     state    waiting  unknown? state"},
		{"redrive the letter that was seen", sawn(event(durable.EventRedrive), 1, 1), "                                 notfound  stale     stale     stale    stale    stale    stale     stale    waiting  unknown? stale"},
		{"redrive another letter", sawn(event(durable.EventRedrive), 2, 2), "                                 notfound  stale     stale     stale    stale    stale    stale     stale    stale    stale    stale"},
		{"redrive what was seen unknown", sawn(event(durable.EventRedrive), 1, 0), "                                 notfound  stale     state     state    state    state    state     state    stale    stale    state"},
		{"resolve the letter that was seen", sawn(resolve(durable.ClassSucceeded), 1, 1), "                                 notfound  stale     stale     stale    stale    stale    stale     stale    done     done stale"},
		{"resolve what was seen unknown", sawn(resolve(durable.ClassSucceeded), 1, 0), "                                 notfound  stale     state     state    state    state    done      state    stale    stale    state"},
		{"resolve what was claimed since", sawn(resolve(durable.ClassSucceeded), 2, 0), "                                 notfound  stale     stale     stale    stale    stale    stale     stale    stale    stale    stale"},
		{"resolve as succeeded", resolve(durable.ClassSucceeded), "             notfound  state     state     state    state    state    done      state    done     done     state"},
		{"resolve as refused", resolve(durable.ClassDeclined), "                 notfound  state     state     state    state    state    waiting   state    dead     dead     state"},
		{"resolve as failed", resolve(durable.ClassFailed), "                   notfound  state     state     state    state    state    waiting   state    dead     dead     state"},
		{"resolve as not found", resolve(durable.ClassNotFound), "              notfound  state     state     state    state    state    waiting   state    dead     dead     state"},
		{"resolve as unknown", resolve(durable.ClassUnknown), "                 invalid   invalid   invalid   invalid  invalid  invalid  invalid   invalid  invalid  invalid  invalid"},
		{"cancel", event(durable.EventCancel), "                                notfound  cancelled cancelled state    state    state    state     state    state    state    ="},
		{"no event", event(0), "                                                invalid   invalid   invalid   invalid  invalid  invalid  invalid   invalid  invalid  invalid  invalid"},
		{"an event of the future", event(99), "                                 invalid   invalid   invalid   invalid  invalid  invalid  invalid   invalid  invalid  invalid  invalid"},
	} {
		t.Run(row.name, func(t *testing.T) {
			wants := strings.Fields(row.want)
			for i, column := range strings.Fields(columns) {
				var r *durable.Record
				if column != "absent" {
					name, doubt := strings.CutSuffix(column, "?")
					record := inState(states[name], doubt)
					r = &record
				}
				var before durable.Record
				if r != nil {
					before = *r
				}
				change, err := durable.Decide(r, &row.event, epoch)
				if r != nil {
					require.Equal(t, before, *r, "%s: Decide has changed its argument", column)
				}
				want := map[string]error{
					"mismatch": durable.ErrMismatch, "notfound": durable.ErrNotFound, "state": durable.ErrInvalidState,
					"fenced": durable.ErrFenced, "stale": durable.ErrStale, "invalid": durable.ErrInvalid,
				}[wants[i]]
				if want != nil || wants[i] == "=" {
					require.ErrorIs(t, err, want, column)
					assert.Equal(t, durable.Change{Record: before, Before: before.State}, change, "%s: something is written", column)
					continue
				}
				require.NoError(t, err, column)
				got := change.Record.State.String()
				if change.Record.InDoubt {
					got += "?"
				}
				assert.Equal(t, wants[i], got, column)
				assert.NotEqual(t, durable.StepKeep, change.Step, column)
				assert.Equal(t, epoch, change.Record.UpdatedAt, column)
				assertSane(t, &change)
			}
		})
	}
}

// assertSane is what holds for every record that is written.
func assertSane(t *testing.T, c *durable.Change) {
	t.Helper()
	r := &c.Record
	assert.Equal(t, r.State.Held(), r.Worker != "", "who is held has a worker, and no other")
	assert.Equal(t, r.State == durable.StateDead, r.DeadLetterID != 0, "who is dead has a letter, and no other")
	assert.Equal(t, r.State.Held() && c.Before.Claimable(), c.StartedAttempt != nil && c.StartedAttempt.Kind != durable.KindResolve, "who is claimed has a row in the journal, and no other")
	switch r.State {
	case durable.StatePending, durable.StateWaiting, durable.StateDone, durable.StateCancelled:
		assert.False(t, r.InDoubt, "%v, and in doubt", r.State)
	case durable.StateUnknown, durable.StateQuerying:
		assert.True(t, r.InDoubt, "%v, and not in doubt", r.State)
	default:
	}
	if r.State.Claimable() {
		assert.False(t, r.NextAt.Before(r.UpdatedAt), "due before it was decided")
	}
}

// What is not due is not claimed, to the microsecond, and a clock that was set back makes
// nothing younger than it is.
func TestDecideClock(t *testing.T) {
	claim := event(durable.EventClaim)
	for _, state := range []durable.State{durable.StatePending, durable.StateWaiting, durable.StateUnknown} {
		r := inState(state, state == durable.StateUnknown)
		_, err := durable.Decide(&r, &claim, epoch.Add(-time.Microsecond))
		require.ErrorIs(t, err, durable.ErrInvalidState)
		change, err := durable.Decide(&r, &claim, epoch)
		require.NoError(t, err)
		assert.Equal(t, epoch, change.StartedAttempt.SentAt)

		r = inState(state, state == durable.StateUnknown)
		r.UpdatedAt = epoch.Add(time.Hour)
		change, err = durable.Decide(&r, &claim, epoch)
		require.NoError(t, err)
		assert.Equal(t, r.UpdatedAt, change.Record.UpdatedAt)
		assert.Equal(t, r.UpdatedAt, change.Record.ClaimedAt)
		assert.Equal(t, r.UpdatedAt, change.StartedAttempt.SentAt)
	}
}

// D5: only what was surely refused is mended by being enqueued again: what was given up for
// any other reason is another intent's.
func TestDecideMend(t *testing.T) {
	mended := event(durable.EventEnqueue)
	mended.Intent = inState(durable.StateDead, false).Intent
	mended.Intent.Payload = []byte("mended")
	for class, want := range map[durable.Class]error{
		durable.ClassUnknown: durable.ErrMismatch, durable.ClassFailed: durable.ErrMismatch,
		durable.ClassNotFound: durable.ErrMismatch, durable.ClassDeclined: nil,
	} {
		r := inState(durable.StateDead, false)
		r.Class = class
		change, err := durable.Decide(&r, &mended, epoch)
		require.ErrorIs(t, err, want, class)
		assert.Equal(t, want == nil, change.Revised, class)
		r.InDoubt = true
		_, err = durable.Decide(&r, &mended, epoch)
		require.ErrorIs(t, err, durable.ErrMismatch, class)
	}
}

// D3: what is done about an unknown outcome.
func TestDecideUnknown(t *testing.T) {
	for _, row := range []struct {
		name  string
		terms durable.Terms
		age   time.Duration // of the epoch
		ask   bool
		late  bool // past its deadline
		want  durable.State
	}{
		{"the key protects", terms, time.Hour, false, false, durable.StateSending},
		{"the key protects, and nobody can be asked", blind, time.Hour, false, false, durable.StateSending},
		{"the last use of the key: its TTL less the visibility delay", terms, 24*time.Hour - terms.VisibilityDelay - time.Microsecond, false, false, durable.StateSending},
		{"a resend could arrive after the key's end: query", terms, 24*time.Hour - terms.VisibilityDelay, false, false, durable.StateQuerying},
		{"the same without status queries: dead", blind, 24*time.Hour - blind.VisibilityDelay, false, false, durable.StateDead},
		{"keys protect nothing", durable.Terms{KeyTTL: -1, CanQuery: true}, 0, false, false, durable.StateQuerying},
		{"keys protect nothing, and nobody can be asked", durable.Terms{KeyTTL: -1}, 0, false, false, durable.StateDead},
		{"the policy asks", terms, time.Hour, true, false, durable.StateQuerying},
		{"the policy asks, and nobody can be asked", blind, time.Hour, true, false, durable.StateSending},
		{"past the deadline", terms, time.Hour, false, true, durable.StateQuerying},
		{"past the deadline, and nobody can be asked", blind, time.Hour, false, true, durable.StateDead},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := inState(durable.StateUnknown, true)
			r.FirstSentAt, r.QueryNext = epoch.Add(-row.age), row.ask
			if row.late {
				r.Deadline = epoch
			}
			e := event(durable.EventClaim)
			e.Terms = &row.terms
			change, err := durable.Decide(&r, &e, epoch)
			require.NoError(t, err)
			assert.Equal(t, row.want, change.Record.State)
			assert.Equal(t, 1, change.Record.Epoch, "an unknown outcome never ends the epoch")
			if row.want == durable.StateDead {
				assert.Equal(t, durable.ReasonUnresolved, change.Record.Reason)
				return
			}
			assert.Equal(t, durable.IdempotencyKey(id, 1), change.StartedAttempt.Key)
		})
	}
}

// D3: NotFound counts only when it was asked for VisibilityDelay after the last send.
func TestDecideNotFound(t *testing.T) {
	for _, row := range []struct {
		name string
		asks time.Duration // after the last send
		want durable.State
	}{
		{"at once", 0, durable.StateUnknown},
		{"just before", 15*time.Minute - time.Microsecond, durable.StateUnknown},
		{"settled", 15 * time.Minute, durable.StateWaiting},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := inState(durable.StateQuerying, true)
			r.ClaimedAt = r.LastSentAt.Add(row.asks)
			e := finish(durable.ClassNotFound, durable.Retry)
			change, err := durable.Decide(&r, &e, epoch) // answered long after
			require.NoError(t, err)
			assert.Equal(t, row.want, change.Record.State)
		})
	}
}

// D4: a definite refusal ends the epoch, and nothing else does while the key protects.
func TestDecideEpoch(t *testing.T) {
	newKey := func(class durable.Class) durable.Event {
		e := finish(class, durable.Retry)
		e.Decision.NewKey = true
		return e
	}
	for _, row := range []struct {
		name  string
		state durable.State
		doubt bool
		event durable.Event
		want  int
	}{
		{"refused", durable.StateSending, false, finish(durable.ClassDeclined, durable.Retry), 2},
		{"refused, but perhaps done before", durable.StateSending, true, finish(durable.ClassDeclined, durable.Retry), 1},
		{"refused, as was found", durable.StateQuerying, true, finish(durable.ClassDeclined, durable.Retry), 2},
		{"failed", durable.StateSending, false, finish(durable.ClassFailed, durable.Retry), 1},
		{"failed, and a new key is wanted", durable.StateSending, false, newKey(durable.ClassFailed), 2},
		{"failed, but perhaps done before, and a new key is wanted", durable.StateSending, true, newKey(durable.ClassFailed), 1},
		{"unknown", durable.StateSending, false, finish(durable.ClassUnknown, durable.Retry), 1},
		{"unknown, and a new key is wanted", durable.StateSending, false, newKey(durable.ClassUnknown), 1},
		{"asked in vain, and a new key is wanted", durable.StateQuerying, true, newKey(durable.ClassUnknown), 1},
		{"lost", durable.StateSending, false, event(durable.EventLeaseExpired), 1},
		{"redriven after a refusal that has ended it", durable.StateDead, false, event(durable.EventRedrive), 1},
		{"redriven in doubt", durable.StateDead, true, event(durable.EventRedrive), 1},
		{"found not to be done, by a person", durable.StateDead, true, resolve(durable.ClassNotFound), 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := inState(row.state, row.doubt)
			change, err := durable.Decide(&r, &row.event, epoch)
			require.NoError(t, err)
			assert.Equal(t, row.want, change.Record.Epoch)
			assert.Equal(t, row.want != 1, change.Record.FirstSentAt.IsZero(), "the next epoch begins with its first send")
		})
	}
	t.Run("a key that would not protect the next send is left", func(t *testing.T) {
		r := inState(durable.StateWaiting, false)
		r.FirstSentAt = epoch.Add(-24 * time.Hour)
		e := event(durable.EventClaim)
		change, err := durable.Decide(&r, &e, epoch)
		require.NoError(t, err)
		assert.Equal(t, 2, change.Record.Epoch)
		assert.Equal(t, epoch, change.Record.FirstSentAt)
		assert.Equal(t, durable.IdempotencyKey(id, 2), change.StartedAttempt.Key)
	})
	t.Run("keys differ by epoch, tenant, operation and key", func(t *testing.T) {
		keys := map[string]bool{}
		for _, id := range []idempotency.ID{
			id, {Scope: "comp", Operation: "1POST /charges", Key: "invoice:001"}, {Scope: "comp2", Operation: id.Operation, Key: id.Key},
			{Scope: id.Scope, Operation: id.Operation, Key: "invoice:002"}, {Scope: id.Scope, Operation: "POST /chargesinvoice", Key: ":001"},
		} {
			keys[durable.IdempotencyKey(id, 1)] = true
			keys[durable.IdempotencyKey(id, 2)] = true
		}
		assert.Len(t, keys, 10)
		assert.Equal(t, "9d2d5a58d2a2f0faaa4624bccdc2c36b15e5eb70", durable.IdempotencyKey(id, 1), "it must never change: it is with the other side")
	})
}

// D3, D4: a refusal of a resend ends the doubt only where it comes from who knows keys, and
// when no earlier send can be done any more. Until then the same key is sent, or asked for.
func TestDecideRefusedInDoubt(t *testing.T) {
	settled := epoch.Add(15 * time.Minute)
	for _, row := range []struct {
		name    string
		terms   durable.Terms
		age     time.Duration // of the send that nobody knows of, when the resend was claimed
		outcome durable.Outcome
		do      durable.Action
		state   durable.State
		ask     bool
		want    time.Time // due not before
	}{
		{"it may yet be done", blind, time.Minute, durable.Outcome{}, durable.Retry, durable.StateUnknown, false, settled.Add(-time.Minute)},
		{"it may yet be done, and the policy buries", blind, time.Minute, durable.Outcome{}, durable.Bury, durable.StateUnknown, false, settled.Add(-time.Minute)},
		{"the last instant", blind, 15*time.Minute - time.Microsecond, durable.Outcome{}, durable.Bury, durable.StateUnknown, false, epoch},
		{"settled", blind, 15 * time.Minute, durable.Outcome{}, durable.Retry, durable.StateWaiting, false, epoch},
		{"settled, and the policy buries", blind, 15 * time.Minute, durable.Outcome{}, durable.Bury, durable.StateDead, false, time.Time{}},
		{"it can be asked", terms, time.Minute, durable.Outcome{}, durable.Bury, durable.StateUnknown, true, epoch},
		{"it can be asked, though settled", terms, time.Hour, durable.Outcome{}, durable.Bury, durable.StateUnknown, true, epoch},
		{"who are you, settled", blind, time.Hour, durable.Outcome{Status: 401}, durable.Retry, durable.StateUnknown, false, epoch},
		{"you may not, settled", blind, time.Hour, durable.Outcome{Status: 403}, durable.Retry, durable.StateUnknown, false, epoch},
		{"payment required, settled", blind, time.Hour, durable.Outcome{Status: 402}, durable.Retry, durable.StateWaiting, false, epoch},
		{"unsent, settled", blind, time.Hour, durable.Outcome{Err: unsent{errors.New("no")}}, durable.Retry, durable.StateUnknown, false, epoch},
		{"unsent, and the policy buries", blind, time.Hour, durable.Outcome{Err: unsent{errors.New("no")}}, durable.Bury, durable.StateDead, false, time.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := inState(durable.StateSending, true)
			r.ClaimedAt = epoch
			r.LastSentAt = epoch.Add(-row.age)
			e := finish(durable.ClassDeclined, row.do)
			e.Terms = &row.terms
			e.Outcome = row.outcome
			e.Outcome.Class = durable.ClassDeclined
			change, err := durable.Decide(&r, &e, epoch.Add(time.Second))
			require.NoError(t, err)
			got := &change.Record
			assert.Equal(t, row.state, got.State)
			assert.Equal(t, row.ask, got.QueryNext)
			assert.Equal(t, r.LastSentAt, got.LastSentAt, "what was surely not done moves nothing")
			if !row.want.IsZero() {
				assert.False(t, got.NextAt.Before(row.want), "due at %v", got.NextAt)
			}
			assertSane(t, &change)
		})
	}
}

// A Policy's times, whatever they are, give a time that is neither past nor lost, and
// a deadline that they would pass is met by death.
func TestDecideTimes(t *testing.T) {
	for _, row := range []struct {
		name     string
		at       time.Time
		deadline time.Time
		class    durable.Class
		state    durable.State
		want     time.Time
	}{
		{"as wanted", epoch.Add(time.Hour), time.Time{}, durable.ClassFailed, durable.StateWaiting, epoch.Add(time.Hour)},
		{"none", time.Time{}, time.Time{}, durable.ClassFailed, durable.StateWaiting, epoch},
		{"past", epoch.Add(-time.Hour), time.Time{}, durable.ClassFailed, durable.StateWaiting, epoch},
		{"a nanosecond later is not earlier", epoch.Add(1), time.Time{}, durable.ClassFailed, durable.StateWaiting, epoch.Add(time.Microsecond)},
		{"the year 9999", time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC), time.Time{}, durable.ClassFailed, durable.StateWaiting, epoch.Add(30 * 24 * time.Hour)},
		{"past the deadline", epoch.Add(time.Hour), epoch.Add(time.Hour), durable.ClassFailed, durable.StateDead, time.Time{}},
		{"past the deadline, but in doubt", epoch.Add(time.Hour), epoch.Add(time.Minute), durable.ClassUnknown, durable.StateUnknown, epoch.Add(time.Minute)},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := inState(durable.StateSending, false)
			r.Deadline = row.deadline
			e := finish(row.class, durable.Retry)
			e.Decision.At = row.at
			change, err := durable.Decide(&r, &e, epoch)
			require.NoError(t, err)
			require.Equal(t, row.state, change.Record.State)
			if row.state == durable.StateDead {
				assert.Equal(t, durable.ReasonDeadline, change.DeadLettered.Reason)
				return
			}
			assert.Equal(t, row.want, change.Record.NextAt)
		})
	}
}

// D3: what was being sent when its worker died is resent while its key protects, and what
// was being asked for is asked for again.
func TestDecideLostAsks(t *testing.T) {
	lose := event(durable.EventLeaseExpired)
	for state, ask := range map[durable.State]bool{durable.StateSending: false, durable.StateQuerying: true} {
		r := inState(state, true)
		change, err := durable.Decide(&r, &lose, epoch)
		require.NoError(t, err)
		assert.Equal(t, ask, change.Record.QueryNext, state)
	}
}

// What is lost with its worker is due at once, however often it was tried, unless it is
// lost again and again.
func TestDecideLost(t *testing.T) {
	r := inState(durable.StateSending, false)
	r.Claims, r.Code = 1000, "24"
	lose := event(durable.EventLeaseExpired)
	for i, want := range []time.Duration{0, 0, 0, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		change, err := durable.Decide(&r, &lose, epoch)
		require.NoError(t, err)
		assert.Equal(t, want, change.Record.NextAt.Sub(epoch), "lease_expired %d times running", i+1)
		r.Code = change.Record.Code
	}
	for code, want := range map[string]time.Duration{
		"": 0, "lease_expired": 0, "lease_expired -7": 0, "lease_expired in transit": 0, "7": 0, "lease_expired 2": 0, "lease_expired 99": 4096 * time.Second, "lease_expired 9223372036854775807": 4096 * time.Second,
	} {
		r.Code = code
		change, err := durable.Decide(&r, &lose, epoch)
		require.NoError(t, err)
		assert.Equal(t, min(want, time.Hour), change.Record.NextAt.Sub(epoch), code)
	}
}

// D7: attempts count what was sent. unsent is an error that proves that nothing was.
type unsent struct{ error }

func (unsent) NotSent() bool { return true }

func TestDecideUnsent(t *testing.T) {
	for _, row := range []struct {
		name  string
		class durable.Class
		err   error
		want  int
	}{
		{"sent", durable.ClassFailed, errors.New("no"), 1},
		{"unsent", durable.ClassFailed, unsent{errors.New("no")}, 0},
		{"unsent, by an error that is wrapped", durable.ClassFailed, errors.Join(errors.New("no"), unsent{errors.New("no")}), 0},
		{"refused, unsent", durable.ClassDeclined, unsent{errors.New("no")}, 0},
		{"unknown is never unsent", durable.ClassUnknown, unsent{errors.New("no")}, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := inState(durable.StateSending, false)
			e := finish(row.class, durable.Retry)
			e.Outcome.Err = row.err
			change, err := durable.Decide(&r, &e, epoch)
			require.NoError(t, err)
			assert.Equal(t, row.want, change.Record.Attempts)
			assert.NotNil(t, change.FinishedAttempt, "the journal's row stays")
		})
	}
}
