package durable_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// outage is a Gateway that returns another outcome for a time.
type outage struct {
	takes    time.Duration
	from, to time.Duration
	outcome  durable.Outcome
	began    time.Time

	mu    sync.Mutex
	sends []time.Duration // when each began
	done  []time.Duration // when each succeeded
}

func (o *outage) Send(_ context.Context, _ *durable.Send) durable.Outcome {
	at := time.Since(o.began)
	time.Sleep(o.takes)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sends = append(o.sends, at)
	if o.from <= at && at < o.to {
		return o.outcome
	}
	o.done = append(o.done, time.Since(o.began))
	return durable.Outcome{Class: durable.ClassSucceeded}
}

// between counts the times in [from, to).
func between(times []time.Duration, from, to time.Duration) (n int) {
	for _, at := range times {
		if from <= at && at < to {
			n++
		}
	}
	return n
}

// D21: an outage of ten minutes costs few claims, and leaves few intents with a long wait: half
// of them are sent within 20 s of the recovery, all within 60 s, at no more than twice the rate
// before.
func TestHold_outage(t *testing.T) {
	for _, row := range []struct {
		name    string
		outcome durable.Outcome
		rate    int // intents per second
	}{
		{"no response", durable.Outcome{}, 70},
		{"503", durable.Outcome{Class: durable.ClassFailed, Status: 503}, 100},
		{"500", durable.Outcome{Status: 500}, 300},
	} {
		bubble.Run(t, fmt.Sprint(row.name, ", ", row.rate, " per second"), func(t *testing.T) {
			const before, outageTime, many = 20 * time.Second, 10 * time.Minute, 2000
			g := &outage{takes: 100 * time.Millisecond, from: before, to: before + outageTime, outcome: row.outcome, began: time.Now()}
			e := through(g)
			running(t, e)
			for i := range row.rate * int(before/time.Second) {
				time.Sleep(time.Second / time.Duration(row.rate))
				enqueue(t, e, pay("tenant "+strconv.Itoa(i%20), "before"+strconv.Itoa(i)))
			}
			enqueue(t, e, ofTenants(20, many)...)
			time.Sleep(g.to - time.Since(g.began))
			holds := holdsOf(t, e)
			require.Len(t, holds, 1)
			assert.Equal(t, "psp", holds[0].Gateway)
			assert.Empty(t, holds[0].By)
			time.Sleep(time.Minute)
			synctest.Wait()
			g.mu.Lock()
			defer g.mu.Unlock()
			assert.Len(t, g.done, many+row.rate*int(before/time.Second), "done within 60 s")
			assert.GreaterOrEqual(t, between(g.done, g.to, g.to+20*time.Second), many/2)
			claims := len(g.sends) - between(g.done, 0, before+time.Second)
			assert.LessOrEqual(t, claims, many*12/10, "1.2 claims each")
			for at := g.to; at < g.to+time.Minute; at += 100 * time.Millisecond {
				require.LessOrEqual(t, between(g.sends, at, at+time.Second), 2*row.rate, "at %v", at-g.to)
			}
		})
	}
}

// D21: a gateway that a person holds gets nothing, and its intents stay as they are. After the
// release the rate rises step by step.
func TestHold_byPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &outage{takes: 10 * time.Millisecond, began: time.Now()}
		var traced []string
		e := through(g)
		e.Trace = &durable.Trace{Held: func(h *durable.Hold, held bool) {
			traced = append(traced, fmt.Sprint(h.Gateway, " ", h.By, h.ReleasedBy, " ", held))
		}}
		e.PollInterval = time.Minute
		running(t, e)
		enqueue(t, e, pay("comp1", "first"))
		time.Sleep(time.Second)
		require.ErrorIs(t, e.Hold(t.Context(), "psp", time.Time{}, "", "why"), durable.ErrInvalid)
		require.ErrorIs(t, e.Hold(t.Context(), "other", time.Time{}, "ann", "why"), durable.ErrInvalid)
		require.ErrorIs(t, e.Release(t.Context(), "psp", "ann"), durable.ErrNotFound)
		require.NoError(t, e.Hold(t.Context(), "psp", time.Time{}, "ann", "incident"))
		const many = 500
		enqueue(t, e, several("comp1", many)...)
		time.Sleep(24 * time.Hour)
		record := find(t, e, pay("comp1", "7").ID)
		assert.Equal(t, durable.StatePending, record.State)
		assert.Zero(t, record.Claims)
		holds := holdsOf(t, e)
		require.Len(t, holds, 1)
		assert.Equal(t, "incident", holds[0].Note)

		require.NoError(t, e.Release(t.Context(), "psp", "bob"))
		released := time.Since(g.began)
		time.Sleep(62 * time.Second)
		synctest.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		assert.Len(t, g.done, many+1)
		assert.LessOrEqual(t, between(g.sends, released, released+time.Minute), 90, "the rate before was one per second")
		assert.Equal(t, []string{"psp ann true", "psp bob false"}, traced)
	})
}

// An outcome with a code and without a status is an answer of a provider that does not speak
// HTTP.
func TestHold_codeIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &outage{to: time.Hour, outcome: durable.Outcome{Class: durable.ClassFailed, Code: "try_later"}, began: time.Now()}
		e := through(g)
		running(t, e)
		enqueue(t, e, several("comp1", 100)...)
		time.Sleep(time.Minute)
		assert.Empty(t, holdsOf(t, e))
	})
}

// A single intent keeps its own times while its gateway is held: a probe takes a due intent.
func TestHold_keepsTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &outage{to: 48 * time.Hour, outcome: durable.Outcome{Class: durable.ClassFailed, Status: 503}, began: time.Now()}
		e := through(g)
		e.PollInterval = time.Minute
		running(t, e)
		enqueue(t, e, pay("comp1", "1"))
		time.Sleep(49*time.Hour + time.Minute)
		synctest.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		assert.Len(t, g.done, 1)
		assert.Less(t, len(g.sends), 300, "no more than its backoff says")
		late := slices.Max(g.done)
		assert.Less(t, late, 51*time.Hour)
	})
}

// A held gateway with hanging workers costs no claims beyond those of polls.
func TestHold_hangingProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, store := shakyStore(gatewayFunc(func(ctx context.Context, _ *durable.Send) durable.Outcome {
			<-ctx.Done()
			return durable.Outcome{}
		}))
		e.PerGateway = 50
		running(t, e)
		enqueue(t, e, ofTenants(20, 200)...)
		time.Sleep(10 * time.Minute)
		assert.Less(t, store.called("claim"), 2*10*60)
	})
}

// D21: the rate before a second outage is not the sum of the answers during the ramp after the
// first one.
func TestHold_secondOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 50
		began := time.Now()
		var mu sync.Mutex
		var sends []time.Duration
		e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
			at := time.Since(began)
			mu.Lock()
			sends = append(sends, at)
			mu.Unlock()
			if s := at.Seconds(); s >= 20 && s < 40 || s >= 60 && s < 80 {
				return durable.Outcome{Status: 500}
			}
			return durable.Outcome{Class: durable.ClassSucceeded}
		}))
		running(t, e)
		for i := range rate * 140 {
			time.Sleep(time.Second / rate)
			enqueue(t, e, pay("tenant "+strconv.Itoa(i%20), strconv.Itoa(i)))
		}
		mu.Lock()
		defer mu.Unlock()
		for at := 80 * time.Second; at < 135*time.Second; at += time.Second {
			require.LessOrEqual(t, between(sends, at, at+time.Second), 2*rate, "at %v", at)
		}
	})
}

// D21: failures of a short time, or of one tenant only, do not slow down other intents.
func TestHold_shortOrPartial(t *testing.T) {
	sick := func(scope string, _ time.Duration) bool { return scope == "sick" }
	for _, row := range []struct {
		name  string
		quiet time.Duration // before the healthy traffic
		sick  int           // intents of a tenant with sends that always fail
		rate  int           // of the healthy intents per second
		fails func(scope string, at time.Duration) bool
		most  time.Duration // until an intent is done
	}{
		{"200 ms of each 2 s: done after one backoff", 0, 0, 400, func(_ string, at time.Duration) bool { return at%(2*time.Second) < 200*time.Millisecond }, 15 * time.Second},
		{"1 s of each 4 s: done after one backoff", 0, 0, 400, func(_ string, at time.Duration) bool { return at%(4*time.Second) < time.Second }, 15 * time.Second},
		{"400 ms soon after the start: no limit by the rate of the first moments", 0, 0, 200, func(_ string, at time.Duration) bool { return at > 200*time.Millisecond && at < 600*time.Millisecond }, 5 * time.Second},
		{"one intent that fails all night: no hold in the morning", 20 * time.Hour, 1, 200, sick, time.Second},
		{"a tenant with many intents that fail: probes reach the others", 0, 2000, 5, sick, 2 * time.Second},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			began := time.Now()
			var mu sync.Mutex
			enqueued, worst := make(map[string]time.Time), time.Duration(0)
			e := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
				at := time.Since(began)
				time.Sleep(50 * time.Millisecond)
				if row.fails(s.ID.Scope, at) {
					return durable.Outcome{Class: durable.ClassFailed, Status: 503}
				}
				mu.Lock()
				defer mu.Unlock()
				worst = max(worst, time.Since(enqueued[s.ID.Key]))
				delete(enqueued, s.ID.Key)
				return durable.Outcome{Class: durable.ClassSucceeded}
			}))
			running(t, e)
			enqueue(t, e, several("sick", row.sick)...)
			time.Sleep(row.quiet)
			for i := range 12 * row.rate {
				key := "healthy " + strconv.Itoa(i)
				mu.Lock()
				enqueued[key] = time.Now()
				mu.Unlock()
				enqueue(t, e, pay("tenant "+strconv.Itoa(i%5), key))
				time.Sleep(time.Second / time.Duration(row.rate))
			}
			time.Sleep(row.most)
			mu.Lock()
			defer mu.Unlock()
			assert.Empty(t, enqueued)
			assert.LessOrEqual(t, worst, row.most)
		})
	}
}

// A hold that would have no effect is rejected, and does not end the one before it.
func TestHold_invalidUntil(t *testing.T) {
	e := through(&outage{})
	require.NoError(t, e.Hold(t.Context(), "psp", time.Time{}, "ann", "incident"))
	for _, until := range []time.Time{time.Now().Add(-time.Hour), time.Date(300000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		require.ErrorIs(t, e.Hold(t.Context(), "psp", until, "bob", ""), durable.ErrInvalid)
	}
	holds := holdsOf(t, e)
	require.Len(t, holds, 1)
	assert.Equal(t, "ann", holds[0].By)
}
