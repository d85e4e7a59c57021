package main

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// The program, with fewer charges and a shorter outage. The random numbers of the faults are always
// the same, and each charge uses at least one.
func TestRun_chargesEachOrderOnce(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := scenario{charges: 150, workers: 20, seed: 1, outage: 500 * time.Millisecond}
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
	assert.Equal(t, 150, ours.bookings, "bookings")

	// The test is valid only if each fault has occurred.
	counts := ours.bank
	assert.Positive(t, counts.lost, "responses lost after a charge")
	assert.Positive(t, counts.overloaded, "503")
	assert.Positive(t, counts.held, "held")
	assert.Positive(t, counts.reset, "connections reset in the outage")
	assert.Positive(t, counts.repeated, "retries with a known key")
	assert.Positive(t, result.theirs.twice, "the for loop charges some customers twice")

	progress, table, _ := strings.Cut(out.String(), "meaning\n")
	assert.Contains(t, progress, "Transport:  150 of 150 done")
	for _, group := range result.rows() {
		for _, r := range group {
			assert.Regexp(t, `(?m)^`+r.name+` +\S+ +\S+   \S.{0,59}$`, table)
		}
	}
}

// With -page, the state page of the Transport is served while the program runs, and no longer.
func TestRun_page(t *testing.T) {
	t.Parallel()
	read, written := io.Pipe()
	s := scenario{charges: 60, workers: 5, seed: 1, outage: 500 * time.Millisecond, page: true}
	done := make(chan error, 1)
	go func() {
		_, err := s.run(t.Context(), written)
		_ = written.Close()
		done <- err
	}()
	lines := bufio.NewReader(read)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	_, address, found := strings.Cut(strings.TrimSpace(line), "The state page, while this runs: ")
	require.True(t, found, line)
	resp, err := http.Get(address)
	require.NoError(t, err)
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Contains(t, string(page), "<title>quickstart</title>")
	_, err = io.Copy(io.Discard, lines)
	require.NoError(t, err)
	require.NoError(t, <-done)
	after, err := http.Get(address)
	if err == nil {
		_ = after.Body.Close()
	}
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// The program shows the zero value of the Transport, as README says.
func TestNewResilient_zeroTransport(t *testing.T) {
	t.Parallel()
	assert.Equal(t, &resilienthttp.Transport{}, newResilient("", nil).client.Transport)
}

// If the Transport has no more attempts, the application repeats the call, and the bank finds the
// order by its key.
func TestCharge_repeatedCallHasSameKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ledger, err := openLedger(t.Context())
		require.NoError(t, err)
		t.Cleanup(ledger.close)
		b := &bank{ledger: ledger}
		charges := b.once(http.HandlerFunc(b.charge))
		lose := faulttest.LoseResponse(charges) // more than the attempts of one call
		server := faulttest.NewInMemory(t, faulttest.Sequence(lose, lose, lose, lose, lose, charges))

		client := newResilient(server.URL, nil)
		client.client.Transport.(*resilienthttp.Transport).Base = server.Transport()
		o := order{Reference: "shop:invoice:1", Amount: 100, Currency: "EUR"}
		got, err := client.charge(t.Context(), o)
		require.NoError(t, err)
		assert.Positive(t, client.calledAgain.Load())
		assert.EqualValues(t, 5, b.repeated.Load())
		server.AssertKeys(t, 1)
		booked, err := ledger.all(t.Context())
		require.NoError(t, err)
		assert.Equal(t, bookings{o.Reference: {got}}, booked)
		assert.Equal(t, o, got.order)
	})
}

func TestCallAgain(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	for _, row := range []struct {
		name  string
		err   error
		again bool
		at    time.Time // not before
	}{
		{"breaker open", &resilienthttp.Error{Reason: resilienthttp.ErrBreakerOpen, NotBefore: later}, true, later},
		{"rate limited", &resilienthttp.Error{Reason: resilienthttp.ErrRateLimited, NotBefore: later}, true, later},
		{"no retries left", &resilienthttp.Error{Reason: resilienthttp.ErrMaxAttempts, Err: io.EOF}, true, time.Time{}},
		{"deadline of the call", &resilienthttp.Error{Reason: resilienthttp.ErrDeadline}, true, time.Time{}},
		{"permanent error", &resilienthttp.Error{Err: errors.New("certificate expired")}, false, time.Time{}},
		{"first request in progress", &statusError{http.StatusConflict}, true, time.Time{}},
		{"overloaded", &statusError{http.StatusServiceUnavailable}, true, time.Time{}},
		{"declined", &statusError{http.StatusPaymentRequired}, false, time.Time{}},
		{"response truncated", io.ErrUnexpectedEOF, true, time.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			at, again := callAgain(row.err)
			assert.Equal(t, row.again, again)
			if row.again {
				assert.True(t, at.After(begin), "at once")
				assert.False(t, at.Before(row.at), "too early")
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	o := order{Reference: "shop:invoice:1", Amount: 100, Currency: "EUR"}
	booked := charge{ID: "ch_000001", order: o}
	other := charge{ID: "ch_000001", order: order{Reference: o.Reference, Amount: 99, Currency: "EUR"}}
	for _, row := range []struct {
		name     string
		bookings int
		reported outcome
		good     bool
	}{
		{"charged once: no error", 1, outcome{charge: booked}, true},
		{"charged twice: error", 2, outcome{charge: booked}, false},
		{"never charged: error", 0, outcome{err: io.EOF}, false},
		{"receipt without charge: error", 0, outcome{charge: booked}, false},
		{"charged, but client has an error: error", 1, outcome{err: io.EOF}, false},
		{"receipt with other amount: error", 1, outcome{charge: other}, false},
		{"receipt of other charge: error", 1, outcome{charge: charge{ID: "ch_000002", order: o}}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			booked := bookings{}
			for i := range row.bookings {
				booked[o.Reference] = append(booked[o.Reference], newCharge(int64(i+1), o))
			}
			c := comparison{ours: clientResult{outcomes: []outcome{row.reported}}}
			c.ours.audit(booked, []order{o})
			if row.good {
				assert.NoError(t, c.verdict())
			} else {
				assert.Error(t, c.verdict())
			}
		})
	}
}
