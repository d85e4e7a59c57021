package sharedquota

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

func limits(ctx context.Context) waitqueue.Limits {
	return waitqueue.Limits{Ctx: ctx, MaxWait: time.Minute}
}

// Usage during an outage of the store is reported as soon as the store is back, even if it has no
// tokens left. For a bucket it is reported when the store has tokens.
func TestQuota_reportsDebt(t *testing.T) {
	now := time.Now()
	const empty = 400 * time.Millisecond
	for _, row := range []struct {
		name    string
		sliding bool
		wait    time.Duration
		debt    int64
	}{
		{"a sliding window: at once", true, 0, 0},
		{"a bucket: when it has something", false, empty, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			rule := quotastore.Rule{Limit: 10, Window: time.Minute, Burst: 10, Sliding: row.sliding}
			q := Quota{rule: rule, window: rule.Window, state: agreed, members: 1, debt: 3, debtAt: now, called: now, after: now.Add(empty)}
			prepare, at := q.nextCall(now)
			require.NotNil(t, prepare)
			require.Equal(t, row.wait, at.Sub(now))

			var store quotastore.Memory
			_, err := store.Take(t.Context(), q.key, 10, 10, rule) // by other processes
			require.NoError(t, err)
			call := prepare()
			result, err := call.do(t.Context(), &store)
			require.NoError(t, err)
			call.apply(result, now)
			require.Equal(t, row.debt, q.debt)
		})
	}
}

// TestQuota_agreesOnTheRule checks which rule a process uses when the store has one.
func TestQuota_agreesOnTheRule(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		name   string
		own    int64 // limit; 0: unknown
		window time.Duration
		store  int64
		want   int64
		length time.Duration
		state  ruleState
	}{
		{"neither knows one", 0, 0, 0, 0, 0, unknown},
		{"the store has one: it is used", 0, 0, ruleNumber(10, 60*s), 10, 60 * s, agreed},
		{"the process has one: it is written", 10, 60 * s, 0, 10, 60 * s, learned},
		{"both have the same", 10, 60 * s, ruleNumber(10, 60*s), 10, 60 * s, agreed},
		{"other processes have seen a longer window", 10, 5 * s, ruleNumber(10, 60*s), 10, 60 * s, agreed},
		{"another limit: the server's is newer", 20, 60 * s, ruleNumber(10, 60*s), 20, 60 * s, differs},
	} {
		t.Run(row.name, func(t *testing.T) {
			q := Quota{window: row.window}
			if row.own > 0 {
				q.rule = ServerRule(row.own, row.window)
			}
			q.compare(row.store)
			require.Equal(t, row.state, q.state)
			require.EqualValues(t, row.want, q.rule.Limit)
			require.Equal(t, row.length, q.window)
		})
	}
}

// TestQuota_countsMembers checks that each process knows how many there are, from their
// heartbeats in the store.
func TestQuota_countsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store quotastore.Memory
		ctx, stop := context.WithCancel(t.Context())
		all := make([]*Quota, 8)
		var calls sync.WaitGroup
		for i := range all {
			all[i] = NewFixed(&store, time.Now(), "s", 100, 20)
			calls.Go(func() {
				for ctx.Err() == nil {
					_, _, _ = all[i].Enter(time.Now(), limits(ctx))
				}
			})
		}
		time.Sleep(9 * time.Second)
		for i := range all {
			all[i].mu.Lock()
			assert.InDelta(t, 8, all[i].members, 2.5, "process %d", i)
			all[i].mu.Unlock()
		}
		stop()
		calls.Wait()
		time.Sleep(time.Minute) // what is left is given back
	})
}

type brokenStore struct{ quotastore.Memory }

func (*brokenStore) Take(context.Context, string, int, int, quotastore.Rule) (quotastore.Result, error) {
	return quotastore.Result{}, errors.New("the store is down")
}

// A store that fails delays no request: the process uses its share of the limit.
func TestQuota_withoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewFixed(new(brokenStore), time.Now(), "s", 10, 10)
		start, n := time.Now(), 0
		for time.Since(start) < 10*time.Second {
			_, _, rejected := q.Enter(time.Now(), limits(t.Context()))
			require.Nil(t, rejected)
			n++
		}
		require.InDelta(t, 100, n, 5)
		time.Sleep(time.Minute)
	})
}

// A process calls the store for more tokens at once, unless the store had none, and at most a
// second after the last call.
func TestQuota_ready(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		name  string
		after time.Time
		want  time.Duration
	}{
		{"nothing is known: at once", time.Time{}, 0},
		{"nothing for 300 ms: then", now.Add(300 * time.Millisecond), 300 * time.Millisecond},
		{"nothing for a minute: in a second", now.Add(time.Minute), time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			q := Quota{called: now, after: row.after}
			require.Equal(t, row.want, max(q.ready().Sub(now), 0))
		})
	}
}
