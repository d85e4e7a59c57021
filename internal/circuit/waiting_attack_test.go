package circuit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A probe of an opening that is over is not current, also if the circuit has opened again.
func TestPermit_currentOfAnOldProbe(t *testing.T) {
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
