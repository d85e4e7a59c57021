package circuit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// Current is true for a probe of an opening that is over, if the circuit has opened again.
func TestAttack_currentOfAnOldProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Rules{FailureRatio: .01, MinRequests: 1, Probes: 1}, time.Now())
		c := b.Circuit(host)
		p, _ := c.Admit(time.Now())
		p.Done(Result{Outcome: Failure}, time.Now())
		time.Sleep(time.Second)
		old, r := c.Admit(time.Now())
		require.Nil(t, r)
		time.Sleep(time.Second)
		next, r := c.Admit(time.Now())
		require.Nil(t, r)
		next.Done(Result{Outcome: Success}, time.Now())
		p, r = c.Admit(time.Now())
		require.Nil(t, r)
		p.Done(Result{Outcome: Failure}, time.Now())
		require.Equal(t, Open, c.State(time.Now()))
		require.False(t, old.Current(), "the circuit has changed twice")
	})
}

// The time that a call needs to join a queue of calls that all rest.
func TestAttack_joinIsLinear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Rules{FailureRatio: .01, MinRequests: 1, Probes: 1}, time.Now())
		c := b.Circuit(host)
		p, _ := c.Admit(time.Now())
		p.Done(Result{Outcome: Failure}, time.Now())
		time.Sleep(time.Second)
		begun := realNow()
		now := time.Now()
		for range maxWaiting {
			_, e, _ := c.join(now, waitqueue.Limits{Ctx: t.Context(), MaxWait: time.Minute, Sent: 1, RestsTo: now.Add(time.Minute)})
			require.NotNil(t, e)
		}
		t.Log("resting: ", realSince(begun))
		c.waiting.queue.WakeAt(time.Time{}, now)
	})
	synctest.Test(t, func(t *testing.T) {
		b := New(Rules{FailureRatio: .01, MinRequests: 1, Probes: 1}, time.Now())
		c := b.Circuit(host)
		p, _ := c.Admit(time.Now())
		p.Done(Result{Outcome: Failure}, time.Now())
		begun := realNow()
		now := time.Now()
		for i := range maxWaiting {
			_, e, _ := c.join(now, waitqueue.Limits{Ctx: t.Context(), MaxWait: time.Minute, Sent: 1, Since: now.Add(-time.Duration(i))})
			require.NotNil(t, e)
		}
		t.Log("in the reverse order: ", realSince(begun))
		c.waiting.queue.WakeAt(time.Time{}, now)
	})
}
