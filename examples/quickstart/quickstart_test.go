package main

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// The program itself, with fewer charges and a shorter outage. The faults are
// drawn in the same order every time, and each charge needs at least one draw.
func TestEveryChargeIsMadeExactlyOnce(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := scenario{charges: 150, workers: 20, seed: 1, darkFor: 500 * time.Millisecond}
	result, err := s.run(t.Context(), &out)
	require.NoError(t, err)
	result.print(&out)
	t.Log("\n" + out.String())

	require.NoError(t, result.verdict())
	ours := &result.ours
	assert.Equal(t, 150, ours.once)
	assert.Zero(t, ours.twice)
	assert.Zero(t, ours.lost)
	assert.Zero(t, ours.wrong)
	assert.Equal(t, 150, ours.bookings, "bookings in all")

	// It proves nothing unless the bank was as bad as promised.
	counts := ours.bank
	assert.Positive(t, counts.lost, "answers lost after charging")
	assert.Positive(t, counts.overloaded, "503")
	assert.Positive(t, counts.held, "held")
	assert.Positive(t, counts.dark, "reset while the bank was gone")
	assert.Positive(t, counts.repeated, "repeats recognised by their key")
	assert.Positive(t, result.theirs.twice, "the for loop charges nobody twice")

	said, table, _ := strings.Cut(out.String(), "what to see\n")
	assert.Contains(t, said, "Transport:  150 of 150 done")
	for _, group := range result.rows() {
		for _, r := range group {
			assert.Regexp(t, `(?m)^`+r.name+` +\S+ +\S+   \S.{0,59}$`, table)
		}
	}
}

// What README says of the zero value is shown with it.
func TestZeroValue(t *testing.T) {
	t.Parallel()
	assert.Equal(t, &resilienthttp.Transport{}, newResilient("", nil).client.Transport)
}

// When even the Transport gives up, the application asks again, and the bank
// knows the order by its key. (In a bubble nobody waits for the waits in between.)
func TestAskingAgainIsSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ledger, err := openLedger(t.Context())
		require.NoError(t, err)
		t.Cleanup(ledger.close)
		b := &bank{ledger: ledger}
		charges := b.once(http.HandlerFunc(b.charge))
		lose := faulttest.LoseResponse(charges) // for more than the attempts of one call
		server := faulttest.NewInMemory(t, faulttest.Sequence(lose, lose, lose, lose, lose, charges))

		client := newResilient(server.URL, nil)
		client.client.Transport.(*resilienthttp.Transport).Base = server.Transport()
		o := order{Reference: "shop:invoice:1", Amount: 100, Currency: "EUR"}
		got, err := client.charge(t.Context(), o)
		require.NoError(t, err)
		assert.Positive(t, client.askedAgain.Load())
		assert.EqualValues(t, 5, b.repeated.Load())
		server.AssertKeys(t, 1)
		booked, err := ledger.all(t.Context())
		require.NoError(t, err)
		assert.Equal(t, bookings{o.Reference: {got}}, booked)
		assert.Equal(t, o, got.order)
	})
}

func TestAskAgain(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	for _, row := range []struct {
		name    string
		err     error
		worthIt bool
		at      time.Time // not before
	}{
		{"breaker open", &resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen, NotBefore: later}, true, later},
		{"rate limited", &resilienthttp.Error{Reason: resilienthttp.ErrRateLimited, NotBefore: later}, true, later},
		{"attempts spent", &resilienthttp.Error{Reason: resilienthttp.ErrMaxAttempts, Err: io.EOF}, true, time.Time{}},
		{"the call's deadline", &resilienthttp.Error{Reason: resilienthttp.ErrDeadline}, true, time.Time{}},
		{"failed for good", &resilienthttp.Error{Err: errors.New("certificate expired")}, false, time.Time{}},
		{"first one still at work", &statusError{http.StatusConflict}, true, time.Time{}},
		{"overloaded", &statusError{http.StatusServiceUnavailable}, true, time.Time{}},
		{"declined", &statusError{http.StatusPaymentRequired}, false, time.Time{}},
		{"answer broke off", io.ErrUnexpectedEOF, true, time.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			at, worthIt := askAgain(row.err)
			assert.Equal(t, row.worthIt, worthIt)
			if row.worthIt {
				assert.True(t, at.After(begin), "at once")
				assert.False(t, at.Before(row.at), "too early")
			}
		})
	}
}

// The audit itself: what it must notice.
func TestVerdict(t *testing.T) {
	t.Parallel()
	o := order{Reference: "shop:invoice:1", Amount: 100, Currency: "EUR"}
	booked := charge{ID: "ch_000001", order: o}
	other := charge{ID: "ch_000001", order: order{Reference: o.Reference, Amount: 99, Currency: "EUR"}}
	for _, row := range []struct {
		name     string
		bookings int
		believed outcome
		good     bool
	}{
		{"once, and known", 1, outcome{charge: booked}, true},
		{"twice", 2, outcome{charge: booked}, false},
		{"lost", 0, outcome{err: io.EOF}, false},
		{"a receipt for nothing", 0, outcome{charge: booked}, false},
		{"booked, and not known", 1, outcome{err: io.EOF}, false},
		{"another amount", 1, outcome{charge: other}, false},
		{"another charge's receipt", 1, outcome{charge: charge{ID: "ch_000002", order: o}}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			booked := bookings{}
			for i := range row.bookings {
				booked[o.Reference] = append(booked[o.Reference], newCharge(int64(i+1), o))
			}
			c := comparison{ours: tally{outcomes: []outcome{row.believed}}}
			c.ours.audit(booked, []order{o})
			if row.good {
				assert.NoError(t, c.verdict())
			} else {
				assert.Error(t, c.verdict())
			}
		})
	}
}
