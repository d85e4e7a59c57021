package durable_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// D25: 600 intents against 60 a minute, with the defaults of an Engine. In the first window, the
// provider rejects at most what is in flight then. Later it is at most three in each window.
func TestProviderHold_quota(t *testing.T) {
	for _, row := range []struct {
		engines int
		takes   time.Duration
		window  int // rejections in a later window
		evenly  bool
	}{
		{1, time.Millisecond, 1, false},
		{1, 100 * time.Millisecond, 1, false},
		{1, time.Second, 3, false},
		{3, 100 * time.Millisecond, 3, false},
		{3, time.Second, 3, false},
		{1, 100 * time.Millisecond, 60, true}, // and one in each second
		{3, 100 * time.Millisecond, 180, true},
	} {
		bubble.Run(t, fmt.Sprintf("%d Engines, %v, evenly %v", row.engines, row.takes, row.evenly), func(t *testing.T) {
			q := &quota{limit: 60, window: time.Minute, takes: row.takes, evenly: row.evenly}
			store := new(durable.Memory)
			stores := make([]durable.Store, row.engines)
			for i := range stores {
				stores[i] = store
			}
			report := q.run(t, 600, stores...)
			assert.Zero(t, report.twice)
			assert.LessOrEqual(t, report.inFlight, 25*row.engines)
			if !row.evenly { // else each intent that is rejected again and again waits longer
				assert.LessOrEqual(t, report.rejected[0], 25*row.engines)
				assert.LessOrEqual(t, report.took, 11*time.Minute)
			}
			assert.LessOrEqual(t, slices.Max(report.rejected[1:]), row.window)
		})
	}
}

// perScope is a Gateway with credentials of each scope.
type perScope struct{ gatewayFunc }

func (perScope) LimitsPerScope() bool { return true }

// rejecting is a Gateway that answers the first send with an outcome, and counts the others.
type rejecting struct {
	outcome func() durable.Outcome

	mu    sync.Mutex
	began bool
	sends []time.Time
	keys  []string // scope and key
}

func (r *rejecting) Send(_ context.Context, s *durable.Send) durable.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.began {
		r.began = true
		return r.outcome()
	}
	r.sends, r.keys = append(r.sends, time.Now()), append(r.keys, s.ID.Scope+s.ID.Key)
	return durable.Outcome{Class: durable.ClassSucceeded}
}

func (r *rejecting) sent() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sends)
}

func asks(status int, wait time.Duration) func() durable.Outcome {
	return func() durable.Outcome {
		return durable.Outcome{Class: durable.ClassFailed, Status: status, NotBefore: time.Now().Add(wait)}
	}
}

// D25: 429, or 503 with a time, holds the gateway until then, at most for a minute. Nothing is claimed
// meanwhile, and no other answer holds it.
func TestProviderHold(t *testing.T) {
	const minute = time.Minute
	fixed := func(o durable.Outcome) func() durable.Outcome { return func() durable.Outcome { return o } }
	for _, row := range []struct {
		name    string
		outcome func() durable.Outcome
		scopes  bool
		held    time.Duration // 0: not
		note    string
	}{
		{"429", asks(429, minute), false, minute, "the provider answered 429 and asked to wait 1m0s"},
		{"503", asks(503, minute), false, minute, "the provider answered 503 and asked to wait 1m0s"},
		{"429 of an unknown result", func() durable.Outcome { return durable.Outcome{Status: 429, NotBefore: time.Now().Add(minute)} }, false, minute, ""},
		{"429 to a scope", asks(429, minute), true, minute, ""},
		{"30 s", asks(429, minute/2), false, minute / 2, "the provider answered 429 and asked to wait 30s"},
		{"a day: a minute", asks(503, 24*time.Hour), false, minute, "the provider answered 503 and asked to wait 24h0m0s"},
		{"429 without a time: no hold", fixed(durable.Outcome{Class: durable.ClassFailed, Status: 429}), false, 0, ""},
		{"503 without a time: no hold", fixed(durable.Outcome{Status: 503}), false, 0, ""},
		{"a time in the past: no hold", asks(429, -time.Hour), false, 0, ""},
		{"500 with a time: no hold", asks(500, minute), false, 0, ""},
		{"a rejection of this process: no hold", asks(0, minute), false, 0, ""},
		{"a decline: no hold", func() durable.Outcome {
			return durable.Outcome{Class: durable.ClassDeclined, Status: 429, NotBefore: time.Now().Add(minute)}
		}, false, 0, ""},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			g := &rejecting{outcome: row.outcome}
			e := through(g)
			if row.scopes {
				e.Gateways["psp"] = perScope{g.Send}
			}
			var log bytes.Buffer
			e.Trace = durable.LogTrace(slog.New(slog.NewTextHandler(&log, nil)))
			running(t, e)
			enqueue(t, e, pay("a", "first"))
			synctest.Wait()
			asked := time.Now()
			enqueue(t, e, pay("a", "second"), pay("b", "third"))
			due := pay("a", "deadline")
			due.Deadline = time.Now().Add(20 * time.Second)
			enqueue(t, e, due)
			time.Sleep(5 * time.Second)
			synctest.Wait() // what is read below was written before
			holds := holdsOf(t, e)
			if row.held == 0 {
				assert.Empty(t, holds)
				assertState(t, e, pay("a", "second").ID, durable.StateDone)
				return
			}
			require.Len(t, holds, 1)
			assert.True(t, holds[0].Provider)
			assert.Equal(t, "provider", holds[0].Holder())
			assert.Equal(t, map[bool]string{true: "a"}[row.scopes], holds[0].Scope)
			assert.WithinDuration(t, asked.Add(row.held), holds[0].Until, 100*time.Millisecond)
			assert.False(t, holds[0].Until.Before(asked.Add(row.held)))
			if row.note != "" {
				assert.Equal(t, row.note, holds[0].Note)
			}
			assert.Contains(t, log.String(), "event=gateway_held gateway=psp ")
			assert.Contains(t, log.String(), fmt.Sprintf("holder=provider error.type=%d until=", journal(t, e, pay("a", "first").ID)[0].Status))
			time.Sleep(row.held - 6*time.Second)
			assert.Zero(t, find(t, e, pay("a", "second").ID).Claims)
			assert.Equal(t, row.scopes, find(t, e, pay("b", "third").ID).State == durable.StateDone)
			time.Sleep(min(row.held/10, minute) + 10*time.Second)
			synctest.Wait()
			for _, key := range []string{"asecond", "bthird"} {
				assert.Contains(t, g.keys, key)
			}
			assert.Equal(t, !strings.HasPrefix(row.name, "a day"), slices.Contains(g.keys, "afirst"), "the one that was answered waits as asked")
			assert.Equal(t, durable.ReasonDeadline, find(t, e, due.ID).Reason)
			for i, at := range g.sends {
				assert.True(t, row.scopes && g.keys[i] == "bthird" || !at.Before(asked.Add(row.held)), "%s at %v", g.keys[i], at.Sub(asked))
			}
		})
	}
}

// D25: a provider that asks for a day is believed for a minute. Then one intent at once tests it, after
// intervals that double up to five minutes, and its success releases the others.
func TestProviderHold_believedAndTested(t *testing.T) {
	for _, row := range []struct {
		name   string
		limits func(scope string, at time.Duration) bool
		tests  []time.Duration // sends that are asked to wait, besides those of the first minute
		done   int             // of 299 other intents, after 52 minutes
	}{
		{"one tenant", func(scope string, _ time.Duration) bool { return scope == "limited" }, nil, 299},
		{"all, for ten minutes", func(_ string, at time.Duration) bool { return at < 10*time.Minute },
			minutes(1, 3, 7), 296},
		{"all, for ever", func(string, time.Duration) bool { return true },
			minutes(1, 3, 7, 12, 17, 22, 27, 32, 37, 42, 47), 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var mu sync.Mutex
			var limited []time.Duration
			began := time.Now()
			e := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
				mu.Lock()
				defer mu.Unlock()
				if !row.limits(s.ID.Scope, time.Since(began)) {
					return durable.Outcome{Class: durable.ClassSucceeded}
				}
				limited = append(limited, time.Since(began))
				return asks(503, 24*time.Hour)()
			}))
			running(t, e)
			enqueue(t, e, pay("limited", "first"))
			synctest.Wait()
			enqueue(t, e, several("other", 299)...)
			time.Sleep(52 * time.Minute)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, limited, 1+len(row.tests))
			for i, at := range row.tests { // each hold begins at the answer, and ends up to a tenth later
				assert.InDelta(t, at.Minutes(), limited[1+i].Minutes(), at.Minutes()/10+.1)
			}
			done := 0
			for i := range 299 {
				if find(t, e, pay("other", strconv.Itoa(i)).ID).State == durable.StateDone {
					done++
				}
			}
			assert.Equal(t, row.done, done)
		})
	}
}

func minutes(all ...int) (at []time.Duration) {
	for _, m := range all {
		at = append(at, time.Duration(m)*time.Minute)
	}
	return at
}

// D25: the Engines of all processes wait, by the database's clock, and each begins at another time in
// the tenth of the wait after it, with one send.
func TestProviderHold_processes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, wait = 40, time.Minute
		g := &rejecting{outcome: asks(429, wait)}
		store := &skewed{Store: new(durable.Memory), by: time.Hour}
		took := gatewayFunc(func(ctx context.Context, s *durable.Send) durable.Outcome {
			defer time.Sleep(10 * time.Second)
			return g.Send(ctx, s)
		})
		for i := range many {
			e := through(took)
			e.Store = store
			if i == 0 {
				enqueue(t, e, pay("a", "first"))
			}
			running(t, e)
		}
		time.Sleep(20 * time.Second)
		asked := time.Now()
		e := through(g)
		e.Store = store
		enqueue(t, e, several("a", 10*many)...)
		time.Sleep(2 * wait)
		synctest.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		require.Len(t, g.sends, 10*many)
		var first []time.Duration
		for _, at := range g.sends[:many] {
			first = append(first, at.Sub(asked))
		}
		assert.GreaterOrEqual(t, first[0], wait-20*time.Second)
		assert.Greater(t, first[many-1]-first[0], wait/30, "the release is spread")
		for i := range many {
			assert.LessOrEqual(t, between(first, first[i], first[i]+time.Second), many/2, "at once: their times are random")
		}
	})
}

// skewed is a Store with a clock that is ahead of that of the Engines.
type skewed struct {
	durable.Store

	by time.Duration
}

func (s *skewed) Claim(ctx context.Context, claim durable.Claim) (durable.Claimed, error) {
	claimed, err := s.Store.Claim(ctx, claim)
	claimed.Now = claimed.Now.Add(s.by)
	for i := range claimed.Waiting {
		h := &claimed.Waiting[i]
		h.Since, h.Until = h.Since.Add(s.by), h.Until.Add(s.by)
	}
	return claimed, err
}

func (s *skewed) Find(ctx context.Context, id idempotency.ID) (durable.Record, error) {
	record, err := s.Store.Find(ctx, id)
	record.NextAt, record.UpdatedAt = record.NextAt.Add(s.by), record.UpdatedAt.Add(s.by)
	return record, err
}

func (s *skewed) SetHold(ctx context.Context, hold durable.Hold) error {
	if hold.Provider {
		hold.Since, hold.Until = hold.Since.Add(-s.by), hold.Until.Add(-s.by)
	}
	return s.Store.SetHold(ctx, hold)
}

// D21, D25: a hold by a person, by the provider and by the Engine do not affect each other. A release ends
// them all, in all processes.
func TestProviderHold_apart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := http.StatusTooManyRequests
		sends := 0
		var mu sync.Mutex
		g := gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			sends++
			return asks(status, time.Hour)()
		})
		e, other := through(g), through(g)
		other.Store = e.Store
		running(t, e)
		enqueue(t, e, several("a", 100)...)
		holders := func() (all []string) {
			time.Sleep(3 * time.Second) // more than a poll
			holds := holdsOf(t, e)
			for i := range holds {
				all = append(all, holds[i].Holder())
			}
			return all
		}
		assert.Equal(t, []string{"provider"}, holders(), "25 answers 429 are no reason for the Engine's own hold")
		require.NoError(t, e.Hold(t.Context(), "psp", time.Now().Add(30*time.Second), "ann", "maintenance"))
		assert.Equal(t, []string{"person", "provider"}, holders())
		time.Sleep(30 * time.Second)
		assert.Equal(t, []string{"provider"}, holders())
		assert.Equal(t, 25, sends)
		require.NoError(t, e.Hold(t.Context(), "psp", time.Time{}, "ann", "maintenance"))
		require.NoError(t, other.Release(t.Context(), "psp", "bob"))
		assert.Equal(t, []string{"provider"}, holders(), "it was asked to wait again")
		assert.GreaterOrEqual(t, sends, 26)
		assert.LessOrEqual(t, sends, 27, "after a release by a person, one is sent at once")
		require.NoError(t, e.Hold(t.Context(), "psp", time.Time{}, "ann", "maintenance"))
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"person"}, holders())
		mu.Lock()
		status = 500
		mu.Unlock()
		require.NoError(t, e.Release(t.Context(), "psp", "bob"))
		time.Sleep(5 * time.Minute)
		assert.Equal(t, []string{"engine"}, holders())
		require.NoError(t, e.Release(t.Context(), "psp", "ann"))
		assert.Empty(t, holdsOf(t, e))
		require.ErrorIs(t, e.Release(t.Context(), "psp", "ann"), durable.ErrNotFound)
	})
}

// D19, D25: while the provider asks to wait, an intent in doubt is queried. Nothing is sent.
func TestProviderHold_query(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sends := make(map[string]int)
		var mu sync.Mutex
		e := through(finderFunc{
			gatewayFunc: func(_ context.Context, s *durable.Send) durable.Outcome {
				mu.Lock()
				defer mu.Unlock()
				sends[s.ID.Key]++
				if s.ID.Key == "doubt" {
					return durable.Outcome{}
				}
				return asks(429, time.Hour)()
			},
			find: succeeds,
		})
		e.Policy = policyFunc(func(_ *durable.History, now time.Time) durable.Decision {
			return durable.Decision{Action: durable.Query, At: now.Add(time.Minute)}
		})
		running(t, e)
		enqueue(t, e, pay("a", "doubt"))
		synctest.Wait()
		enqueue(t, e, pay("b", "limited"))
		time.Sleep(2 * time.Minute)
		assertState(t, e, pay("a", "doubt").ID, durable.StateDone)
		assertState(t, e, pay("b", "limited").ID, durable.StateWaiting)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, map[string]int{"doubt": 1, "limited": 1}, sends)
	})
}

// D25: a hold that cannot be stored holds this Engine.
func TestProviderHold_notStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &rejecting{outcome: asks(429, time.Hour)}
		e, store := shakyStore(g)
		store.set(func(verb string) error { return map[string]error{"hold": errDown}[verb] })
		var failed atomic.Pointer[error]
		e.Trace = &durable.Trace{Failed: func(err error) { failed.Store(&err) }}
		running(t, e)
		enqueue(t, e, pay("a", "first"))
		synctest.Wait()
		enqueue(t, e, pay("b", "second"))
		time.Sleep(59 * time.Second)
		synctest.Wait()
		require.NotNil(t, failed.Load())
		require.ErrorIs(t, *failed.Load(), errDown)
		assert.Empty(t, g.sent())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Len(t, g.sent(), 1)
	})
}

// D25: a store that takes longer for the hold than the hold lasts does not hold the gateway for ever.
func TestProviderHold_storedLate(t *testing.T) {
	for _, scopes := range []bool{false, true} {
		bubble.Run(t, fmt.Sprintf("per scope %v", scopes), func(t *testing.T) {
			g := &rejecting{outcome: asks(429, time.Second)}
			e, store := shakyStore(g)
			if scopes {
				e.Gateways["psp"] = perScope{g.Send}
			}
			e.PollInterval = time.Minute // no claim sees the stored hold, which lasts for a second
			store.set(func(verb string) error {
				if verb == "hold" {
					time.Sleep(20 * time.Second)
				}
				return nil
			})
			running(t, e)
			enqueue(t, e, pay("a", "first"))
			for _, key := range []string{"after the hold", "after it is stored"} {
				time.Sleep(15 * time.Second)
				enqueue(t, e, pay("a", key))
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			for _, key := range []string{"first", "after the hold", "after it is stored"} {
				assertState(t, e, pay("a", key).ID, durable.StateDone)
			}
		})
	}
}

// D25: WorkOne returns the end of the hold as the time of its next call.
func TestProviderHold_workOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &rejecting{outcome: asks(429, time.Hour)}
		e := through(g)
		enqueue(t, e, pay("a", "first"), pay("a", "second"))
		for i, wait := range minutes(60, 1) {
			next := workOne(t, e, pay("a", []string{"first", "second"}[i]).ID)
			assert.GreaterOrEqual(t, time.Until(next), wait)
			assert.Less(t, time.Until(next), wait+10*time.Second)
		}
		time.Sleep(time.Minute + 10*time.Second)
		assert.Zero(t, workOne(t, e, pay("a", "second").ID))
	})
}

// D27: a clean shutdown is no failed attempt. An intent that was cut is in doubt, and another Engine
// sends it at once under the same key, whatever the Policy says.
func TestShutdown(t *testing.T) {
	for _, row := range []struct {
		name     string
		outcome  func(context.Context) durable.Outcome // of the send that is cut
		state    durable.State
		attempts int
	}{
		{"cut", func(ctx context.Context) durable.Outcome { return durable.Outcome{Err: ctx.Err()} }, durable.StateUnknown, 1},
		{"not sent", func(ctx context.Context) durable.Outcome {
			return durable.Outcome{Class: durable.ClassFailed, Err: &resilienthttp.Error{Err: ctx.Err(), Reason: resilienthttp.ErrRateLimited}}
		}, durable.StateWaiting, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var keys []string
			e := through(gatewayFunc(func(ctx context.Context, s *durable.Send) durable.Outcome {
				if keys = append(keys, s.Key); len(keys) > 1 {
					return durable.Outcome{Class: durable.ClassSucceeded}
				}
				<-ctx.Done()
				return row.outcome(ctx)
			}))
			e.Policy = policyFunc(func(_ *durable.History, now time.Time) durable.Decision {
				t.Error("the Policy was called")
				return durable.Decision{Action: durable.Bury, At: now.Add(time.Hour)}
			})
			in := enqueuePay(t, e)
			runFor(t, e, time.Second)
			record := find(t, e, in.ID)
			assert.Equal(t, row.state, record.State)
			assert.Equal(t, row.attempts, record.Attempts)
			assert.Equal(t, row.attempts, record.Claims)
			assert.False(t, record.NextAt.After(time.Now()))
			assert.Equal(t, 1, work(t, e, 1))
			assertState(t, e, in.ID, durable.StateDone)
			require.Len(t, keys, 2)
			assert.Equal(t, keys[0], keys[1])
		})
	}
}

// quota is a provider that permits limit sends in each window. It answers 429 to the others, with the
// time at which it permits the next.
type quota struct {
	limit  int
	window time.Duration
	takes  time.Duration // of a send; the decision is in its middle
	evenly bool          // the quota fills up evenly, and not at the begin of each window

	mu       sync.Mutex
	began    time.Time
	filled   time.Time // when it had these tokens
	tokens   float64
	inFlight int
	done     map[string]bool
	counted  report
}

// report is what a quota has counted.
type report struct {
	inFlight int   // sends at the first 429
	rejected []int // by window
	twice    int   // sends of an intent that was done
	took     time.Duration
}

// run sends many intents of one scope through an Engine on each of the stores, which share their
// intents. The Engines have the defaults.
func (q *quota) run(t *testing.T, many int, stores ...durable.Store) report {
	t.Helper()
	q.done = make(map[string]bool, many)
	engines := make([]*durable.Engine, len(stores))
	for i, store := range stores {
		engines[i] = &durable.Engine{Store: store, Gateways: map[string]durable.Gateway{"psp": q}}
	}
	intents := make([]durable.Intent, many)
	for i := range intents {
		intents[i] = durable.Intent{ID: idempotency.ID{Scope: "a", Operation: "charge", Key: strconv.Itoa(i)}, Gateway: "psp"}
	}
	if _, err := engines[0].EnqueueBatch(t.Context(), intents); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, e := range engines {
		running.Go(func() {
			if err := e.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for left := true; left; {
		_ = sleep.Context(ctx, time.Second)
		q.mu.Lock()
		left = len(q.done) < many
		q.mu.Unlock()
	}
	cancel()
	running.Wait()
	t.Logf("in flight %d, rejected %v, done after %v", q.counted.inFlight, q.counted.rejected, q.counted.took)
	return q.counted
}

// Send implements durable.Gateway.
func (q *quota) Send(ctx context.Context, s *durable.Send) durable.Outcome {
	q.mu.Lock()
	q.inFlight++
	q.mu.Unlock()
	_ = sleep.Context(ctx, q.takes/2)
	outcome := q.decide(s.ID.Key)
	_ = sleep.Context(ctx, q.takes/2)
	q.mu.Lock()
	q.inFlight--
	q.mu.Unlock()
	return outcome
}

func (q *quota) decide(key string) durable.Outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if q.began.IsZero() {
		q.began, q.filled, q.tokens = now, now, float64(q.limit)
	}
	window := int(now.Sub(q.began) / q.window)
	again := q.fill(now, window)
	if q.tokens >= 1 {
		q.tokens--
		if q.done[key] {
			q.counted.twice++
		}
		q.done[key] = true
		q.counted.took = now.Sub(q.began)
		return durable.Outcome{Class: durable.ClassSucceeded}
	}
	if q.counted.inFlight == 0 {
		q.counted.inFlight = q.inFlight
	}
	q.counted.rejected[window]++
	return durable.Outcome{Class: durable.ClassFailed, Status: http.StatusTooManyRequests, NotBefore: again}
}

// fill fills up the quota, and returns the time of the next token in whole seconds from now, as a
// Retry-After has it.
func (q *quota) fill(now time.Time, window int) time.Time {
	again := q.began.Add(time.Duration(window+1) * q.window)
	for len(q.counted.rejected) <= window {
		q.counted.rejected = append(q.counted.rejected, 0)
		if !q.evenly {
			q.tokens = float64(q.limit)
		}
	}
	if q.evenly {
		rate := float64(q.limit) / q.window.Seconds()
		q.tokens = min(q.tokens+now.Sub(q.filled).Seconds()*rate, float64(q.limit))
		q.filled = now
		again = now.Add(time.Duration((1 - q.tokens) / rate * float64(time.Second)))
	}
	return now.Add((again.Sub(now) + time.Second - 1).Truncate(time.Second))
}
