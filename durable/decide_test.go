package durable_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

var (
	terms = durable.Terms{KeyTTL: 24 * time.Hour, VisibilityDelay: 15 * time.Minute, CanQuery: true}
	blind = durable.Terms{KeyTTL: 24 * time.Hour, VisibilityDelay: 15 * time.Minute}
)

// inState is a record in a state, an hour after it was sent first, if it was.
func inState(state durable.State, doubt bool) durable.Record {
	in := durable.Intent{ID: id, Gateway: "psp", Payload: []byte("pay")}
	r := durable.Record{
		Intent: in, Fingerprint: durable.FingerprintOf(&in), State: state, Epoch: 1, InDoubt: doubt,
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

// sawn is an event of a person that saw the intent in this state.
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

// D14: eight states times all events. The name of a state is the new state, "=" means that nothing
// is written, and other texts are errors, which write nothing.
func TestDecide_table(t *testing.T) {
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

	columns := "absent pending waiting sending sending? querying? unknown? done dead dead? canceled"
	states := map[string]durable.State{}
	for state := durable.StatePending; state <= durable.StateCanceled; state++ {
		states[state.String()] = state
	}
	for _, row := range []struct {
		name  string
		event durable.Event
		want  string // in the order of columns; "?": in doubt
	}{
		//                                                                     absent    pending   waiting   sending  sending? querying?  unknown?  done     dead     dead?    canceled
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
		{"cancel", event(durable.EventCancel), "                                notfound  canceled canceled state    state    state    state     state    state    state    ="},
		{"erase", event(durable.EventErase), "                                 notfound  state     state     state    state    state    state     done     canceled state   canceled"},
		{"erase by no person", durable.Event{Kind: durable.EventErase, Intent: durable.Intent{ID: id}}, "invalid invalid invalid invalid invalid invalid invalid invalid invalid invalid invalid"},
		{"no event", event(0), "                                                invalid   invalid   invalid   invalid  invalid  invalid  invalid   invalid  invalid  invalid  invalid"},
		{"an event of the future", event(99), "                                 invalid   invalid   invalid   invalid  invalid  invalid  invalid   invalid  invalid  invalid  invalid"},
	} {
		t.Run(row.name, func(t *testing.T) {
			wants := strings.Fields(row.want)
			for i, column := range strings.Fields(columns) {
				var r *durable.Record
				if column != "absent" {
					name, doubt := strings.CutSuffix(column, "?")
					r = new(inState(states[name], doubt))
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

// assertSane checks what holds for every record that is written.
func assertSane(t *testing.T, c *durable.Change) {
	t.Helper()
	r := &c.Record
	assert.Equal(t, r.State.Held(), r.Worker != "", "only a held intent has a worker")
	assert.Equal(t, r.State == durable.StateDead, r.DeadLetterID != 0, "only a dead intent has a dead letter")
	assert.Equal(t, r.State.Held() && c.Before.Claimable(), c.StartedAttempt != nil && c.StartedAttempt.Kind < durable.KindResolve, "only a claim begins an attempt")
	switch r.State {
	case durable.StatePending, durable.StateWaiting, durable.StateDone, durable.StateCanceled:
		assert.False(t, r.InDoubt, "%v, and in doubt", r.State)
	case durable.StateUnknown, durable.StateQuerying:
		assert.True(t, r.InDoubt, "%v, and not in doubt", r.State)
	default:
	}
	if r.State.Claimable() {
		assert.False(t, r.NextAt.Before(r.UpdatedAt), "due before it was decided")
	}
}

// An intent is not claimed a microsecond before it is due.
func TestDecide_clock(t *testing.T) {
	claim := event(durable.EventClaim)
	for _, state := range []durable.State{durable.StatePending, durable.StateWaiting, durable.StateUnknown} {
		r := inState(state, state == durable.StateUnknown)
		_, err := durable.Decide(&r, &claim, epoch.Add(-time.Microsecond))
		require.ErrorIs(t, err, durable.ErrInvalidState)
		change, err := durable.Decide(&r, &claim, epoch)
		require.NoError(t, err)
		assert.Equal(t, epoch, change.StartedAttempt.SentAt)
	}
}

// D30: after the clock was set back, an intent that was due is due, and its waits and ages are those that it had when it was
// changed last: neither longer by as much as the clock was set, nor shorter.
func TestDecide_clockSetBack(t *testing.T) {
	const back = time.Hour
	for _, state := range []durable.State{durable.StatePending, durable.StateWaiting, durable.StateUnknown} {
		r := inState(state, state == durable.StateUnknown)
		r.UpdatedAt, r.NextAt, r.RetryWindowStart = epoch, epoch, epoch.Add(-2*time.Hour)
		sent := !r.FirstSentAt.IsZero()
		claimed, err := durable.Decide(&r, new(event(durable.EventClaim)), epoch.Add(-back))
		require.NoError(t, err)
		got := &claimed.Record
		assert.Equal(t, epoch.Add(-back), got.UpdatedAt)
		assert.Equal(t, epoch.Add(-back), got.ClaimedAt)
		assert.Equal(t, epoch.Add(-back), claimed.StartedAttempt.SentAt)
		assert.Equal(t, r.CreatedAt, got.CreatedAt, "lists keep their order")
		assert.Equal(t, r.RetryWindowStart.Add(-back), got.RetryWindowStart)
		if sent {
			assert.Equal(t, r.FirstSentAt.Add(-back), got.FirstSentAt)
			assert.Equal(t, r.LastSentAt.Add(-back), got.LastSentAt)
		}
		e := finish(durable.ClassFailed, durable.Retry)
		e.Generation = got.Generation
		e.Decision.At = epoch.Add(-back + 10*time.Second)
		failed, err := durable.Decide(got, &e, epoch.Add(-back+time.Second))
		require.NoError(t, err)
		assert.Equal(t, 9*time.Second, failed.Record.NextAt.Sub(failed.Record.UpdatedAt), "the backoff")
		assert.True(t, failed.Record.Scheduled())
	}
	t.Run("a backoff that was decided by the clock before", func(t *testing.T) {
		r := inState(durable.StateSending, false)
		r.UpdatedAt, r.ClaimedAt = epoch, epoch
		e := finish(durable.ClassFailed, durable.Retry)
		e.Decision.At = epoch.Add(3*time.Second + time.Minute)
		now := epoch.Add(-back + 3*time.Second)
		change, err := durable.Decide(&r, &e, now)
		require.NoError(t, err)
		assert.Equal(t, now.Add(time.Minute+3*time.Second), change.Record.NextAt, "the time of the attempt counts twice")
	})
	t.Run("a wait begins anew", func(t *testing.T) {
		r := inState(durable.StateWaiting, false)
		r.UpdatedAt, r.NextAt = epoch, epoch.Add(time.Minute)
		assert.False(t, r.Due(epoch.Add(-back)))
		_, err := durable.Decide(&r, new(event(durable.EventClaim)), epoch.Add(-back))
		require.ErrorIs(t, err, durable.ErrInvalidState)
	})
	t.Run("a key that had ended stays so", func(t *testing.T) {
		r := inState(durable.StateUnknown, true)
		r.UpdatedAt, r.NextAt, r.FirstSentAt = epoch, epoch, epoch.Add(-24*time.Hour)
		change, err := durable.Decide(&r, new(event(durable.EventClaim)), epoch.Add(-back))
		require.NoError(t, err)
		assert.Equal(t, durable.StateQuerying, change.Record.State)
	})
	t.Run("the first send stays where its caller wants it", func(t *testing.T) {
		r := inState(durable.StatePending, false)
		r.UpdatedAt, r.NextAt = epoch, epoch.Add(time.Hour)
		_, err := durable.Decide(&r, new(event(durable.EventClaim)), epoch.Add(-back))
		require.ErrorIs(t, err, durable.ErrInvalidState)
		change, err := durable.Decide(&r, new(event(durable.EventClaim)), epoch.Add(time.Hour))
		require.NoError(t, err)
		assert.Equal(t, durable.StateSending, change.Record.State)
	})
	t.Run("nothing is written: nothing is moved", func(t *testing.T) {
		r := inState(durable.StateWaiting, false)
		r.UpdatedAt = epoch
		again := event(durable.EventEnqueue)
		again.Intent = r.Intent
		change, err := durable.Decide(&r, &again, epoch.Add(-back))
		require.NoError(t, err)
		assert.Equal(t, durable.Change{Record: r, Before: r.State}, change)
	})
}

// D5: only a declined intent can be enqueued again with another payload. For other dead intents
// that is a mismatch.
func TestDecide_revise(t *testing.T) {
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

// D24: a fingerprint of the caller's own decides whether two payloads are those of one intent.
func TestDecide_fingerprint(t *testing.T) {
	plain := durable.Intent{ID: id, Gateway: "psp", Payload: []byte("encrypted once")}
	own := plain
	own.Fingerprint = "invoice 1"
	for _, row := range []struct {
		name        string
		of          durable.Intent
		payload     string
		fingerprint idempotency.Fingerprint
		want        error
	}{
		{"another encryption of the payload: the existing intent", own, "encrypted twice", "invoice 1", nil},
		{"another fingerprint: a mismatch", own, "encrypted once", "invoice 2", durable.ErrMismatch},
		{"no fingerprint: the payload is compared", own, "encrypted once", "", durable.ErrMismatch},
		{"no fingerprint twice: the existing intent", plain, "encrypted once", "", nil},
		{"a fingerprint of what had none: a mismatch", plain, "encrypted once", "invoice 1", durable.ErrMismatch},
	} {
		stored, err := durable.Decide(nil, &durable.Event{Kind: durable.EventEnqueue, Intent: row.of}, epoch)
		require.NoError(t, err)
		require.Empty(t, stored.Record.Intent.Fingerprint)
		row.of.Payload, row.of.Fingerprint = []byte(row.payload), row.fingerprint
		_, err = durable.Decide(&stored.Record, &durable.Event{Kind: durable.EventEnqueue, Intent: row.of}, epoch)
		require.ErrorIs(t, err, row.want, row.name)
	}
}

// D15: the retry window begins when the intent is due, and anew with a redrive.
func TestDecide_retryWindow(t *testing.T) {
	in := durable.Intent{ID: id, Gateway: "psp", NotBefore: epoch.Add(240 * time.Hour)}
	change, err := durable.Decide(nil, &durable.Event{Kind: durable.EventEnqueue, Intent: in}, epoch)
	require.NoError(t, err)
	assert.Equal(t, in.NotBefore, change.Record.RetryWindowStart)
	dead, redrive := inState(durable.StateDead, false), event(durable.EventRedrive)
	redrive.After = time.Hour
	change, err = durable.Decide(&dead, &redrive, epoch)
	require.NoError(t, err)
	assert.Equal(t, epoch.Add(time.Hour), change.Record.RetryWindowStart)
}

// D3: the next step after an unknown outcome.
func TestDecide_unknown(t *testing.T) {
	for _, row := range []struct {
		name  string
		terms durable.Terms
		age   time.Duration // of the epoch
		ask   bool
		late  bool // past its deadline
		want  durable.State
	}{
		{"the key protects", terms, time.Hour, false, false, durable.StateSending},
		{"the key protects, and no status queries", blind, time.Hour, false, false, durable.StateSending},
		{"the last use of the key: its TTL less the visibility delay", terms, 24*time.Hour - terms.VisibilityDelay - time.Microsecond, false, false, durable.StateSending},
		{"a resend could arrive after the key's end: query", terms, 24*time.Hour - terms.VisibilityDelay, false, false, durable.StateQuerying},
		{"the same without status queries: dead", blind, 24*time.Hour - blind.VisibilityDelay, false, false, durable.StateDead},
		{"keys protect nothing", durable.Terms{KeyTTL: -1, CanQuery: true}, 0, false, false, durable.StateQuerying},
		{"keys protect nothing, and no status queries", durable.Terms{KeyTTL: -1}, 0, false, false, durable.StateDead},
		{"the policy asks", terms, time.Hour, true, false, durable.StateQuerying},
		{"the policy asks, and no status queries", blind, time.Hour, true, false, durable.StateSending},
		{"past the deadline", terms, time.Hour, false, true, durable.StateQuerying},
		{"past the deadline, and no status queries", blind, time.Hour, false, true, durable.StateDead},
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

// D3: ClassNotFound counts only if the query began VisibilityDelay after the last send.
func TestDecide_notFound(t *testing.T) {
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
			change, err := durable.Decide(&r, new(finish(durable.ClassNotFound, durable.Retry)), epoch) // answered long after
			require.NoError(t, err)
			assert.Equal(t, row.want, change.Record.State)
		})
	}
}

// D4: while the key protects, only a definite decline ends the epoch.
func TestDecide_epoch(t *testing.T) {
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
		{"a status query without a result, and a new key is wanted", durable.StateQuerying, true, newKey(durable.ClassUnknown), 1},
		{"lost", durable.StateSending, false, event(durable.EventLeaseExpired), 1},
		{"redriven after a refusal that has ended it", durable.StateDead, false, event(durable.EventRedrive), 1},
		{"redriven in doubt", durable.StateDead, true, event(durable.EventRedrive), 1},
		{"found not to be done, by a person", durable.StateDead, true, resolve(durable.ClassNotFound), 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			change, err := durable.Decide(new(inState(row.state, row.doubt)), &row.event, epoch)
			require.NoError(t, err)
			assert.Equal(t, row.want, change.Record.Epoch)
			assert.Equal(t, row.want != 1, change.Record.FirstSentAt.IsZero(), "the next epoch begins with its first send")
		})
	}
	t.Run("a key that would not protect the next send is left", func(t *testing.T) {
		r := inState(durable.StateWaiting, false)
		r.FirstSentAt = epoch.Add(-24 * time.Hour)
		change, err := durable.Decide(&r, new(event(durable.EventClaim)), epoch)
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
		assert.Equal(t, "9d2d5a58d2a2f0faaa4624bccdc2c36b15e5eb70", durable.IdempotencyKey(id, 1), "it must never change: providers store it")
	})
}

// D3, D4: a decline of a resend ends the doubt only if it comes from the part of the provider
// that knows keys, and after the visibility delay of the earlier sends. Until then the intent is
// sent under the same key, or queried.
func TestDecide_declinedInDoubt(t *testing.T) {
	settled := epoch.Add(15 * time.Minute)
	for _, row := range []struct {
		name    string
		terms   durable.Terms
		age     time.Duration // of the send with the unknown result, when the resend was claimed
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
		{"with status queries, after the visibility delay", terms, time.Hour, durable.Outcome{}, durable.Bury, durable.StateUnknown, true, epoch},
		{"401, after the visibility delay", blind, time.Hour, durable.Outcome{Status: 401}, durable.Retry, durable.StateUnknown, false, epoch},
		{"403, after the visibility delay", blind, time.Hour, durable.Outcome{Status: 403}, durable.Retry, durable.StateUnknown, false, epoch},
		{"402, after the visibility delay", blind, time.Hour, durable.Outcome{Status: 402}, durable.Retry, durable.StateWaiting, false, epoch},
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

// Any time of a Policy results in a time that is neither past nor too far away. If it would pass
// the deadline, the intent is dead.
func TestDecide_times(t *testing.T) {
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

// D3: after its worker died, an intent is sent again while its key protects. If it was being
// queried, it is queried again.
func TestDecide_leaseExpiredDuringQuery(t *testing.T) {
	for state, ask := range map[durable.State]bool{durable.StateSending: false, durable.StateQuerying: true} {
		change, err := durable.Decide(new(inState(state, true)), new(event(durable.EventLeaseExpired)), epoch)
		require.NoError(t, err)
		assert.Equal(t, ask, change.Record.QueryNext, state)
	}
}

// D29: an intent of a dead worker is due at once. From the third lost lease in a row on it is sent alone. Then it also waits,
// longer each time, and after the twelfth it is dead.
func TestDecide_leaseExpired(t *testing.T) {
	r := inState(durable.StateSending, false)
	r.Claims = 1000
	lose := event(durable.EventLeaseExpired)
	for lost := 1; lost <= 12; lost++ {
		change, err := durable.Decide(&r, &lose, epoch)
		require.NoError(t, err)
		assertSane(t, &change)
		got := &change.Record
		assert.Equal(t, lost, got.LostLeases)
		assert.Equal(t, fmt.Sprint("lease_expired ", lost), got.Code)
		assert.Equal(t, lost >= 3, got.Suspect(), lost)
		assert.True(t, got.InDoubt)
		if lost == 12 {
			assert.Equal(t, durable.StateDead, got.State)
			assert.Equal(t, durable.ReasonLeaseExpired, change.DeadLettered.Reason)
			assert.Equal(t, got.Code, change.DeadLettered.Code)
			return
		}
		require.Equal(t, durable.StateUnknown, got.State)
		wait := got.NextAt.Sub(epoch)
		if lost <= 3 {
			assert.Zero(t, wait, lost)
		} else {
			least := time.Second << (lost - 3)
			assert.True(t, least <= wait && wait < 2*least, "lost %d: waits %v", lost, wait)
		}
		r.LostLeases = lost
	}
}

// D29: intents that were lost together do not come back together, and Decide gives the same time twice.
func TestDecide_leaseExpiredJitter(t *testing.T) {
	const intents = 24
	lose := event(durable.EventLeaseExpired)
	for lost := 4; lost < 12; lost++ {
		tenths := make(map[int]int) // of the jitter
		for i := range intents {
			r := inState(durable.StateSending, false)
			r.ID.Key, r.LostLeases = fmt.Sprint("invoice:", i), lost-1
			lose.Intent.ID = r.ID
			change, err := durable.Decide(&r, &lose, epoch)
			require.NoError(t, err)
			again, err := durable.Decide(&r, &lose, epoch)
			require.NoError(t, err)
			assert.Equal(t, change, again)
			share := change.Record.NextAt.Sub(epoch).Seconds()/float64(int(1)<<(lost-3)) - 1
			tenths[int(share*10)]++
		}
		assert.GreaterOrEqual(t, len(tenths), 6, "%d intents that lost %d leases wait in tenths %v", intents, lost, tenths)
	}
}

// D29: only the end of a send shows that the process survives it. What was not sent, a status query and a person show nothing of
// the kind.
func TestDecide_lostLeasesEnd(t *testing.T) {
	notSent := finish(durable.ClassFailed, durable.Retry)
	notSent.Outcome.Err = unsent{errors.New("no")}
	stopped := notSent
	stopped.Interrupted = true
	cut := finish(durable.ClassUnknown, durable.Retry)
	cut.Interrupted = true
	revised := event(durable.EventEnqueue)
	revised.Intent = inState(durable.StateDead, false).Intent
	revised.Intent.Payload = []byte("mended")
	for _, row := range []struct {
		name  string
		state durable.State
		doubt bool
		event durable.Event
		lost  int
		want  int
	}{
		{"a send timed out", durable.StateSending, true, finish(durable.ClassUnknown, durable.Retry), 11, 0},
		{"a send failed", durable.StateSending, true, finish(durable.ClassFailed, durable.Retry), 11, 0},
		{"a send was cut by a shutdown", durable.StateSending, true, cut, 11, 0},
		{"not sent", durable.StateSending, true, notSent, 2, 2},
		{"not sent, because the worker stops", durable.StateSending, true, stopped, 2, 2},
		{"a status query got no answer", durable.StateQuerying, true, finish(durable.ClassUnknown, durable.Query), 2, 2},
		{"a status query found nothing", durable.StateQuerying, true, finish(durable.ClassNotFound, durable.Retry), 2, 2},
		{"claimed", durable.StateUnknown, true, event(durable.EventClaim), 2, 2},
		{"redriven by a person: still alone, with nine more", durable.StateDead, true, event(durable.EventRedrive), 12, 3},
		{"redriven after another end", durable.StateDead, true, event(durable.EventRedrive), 2, 2},
		{"not done, says a person", durable.StateUnknown, true, resolve(durable.ClassNotFound), 5, 3},
		{"another payload", durable.StateDead, false, revised, 5, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := inState(row.state, row.doubt)
			r.LostLeases = row.lost
			change, err := durable.Decide(&r, &row.event, epoch)
			require.NoError(t, err)
			assert.Equal(t, row.want, change.Record.LostLeases)
		})
	}
}

// D7: attempts counts sends. unsent is an error which proves that nothing was sent.
type unsent struct{ error }

func (unsent) NotSent() bool { return true }

func TestDecide_unsent(t *testing.T) {
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
