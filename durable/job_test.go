package durable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// D22: Run executes a job page by page, at its rate, while it sends other intents.
func TestRun_executesJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gateway := new(refusing)
		var redriven atomic.Int64
		e := through(gateway)
		e.Trace = &durable.Trace{Changed: func(c *durable.Change) {
			if c.Resolved != nil {
				redriven.Add(1)
			}
		}}
		deadLetters(t, e, 1000)
		gateway.open.Store(true)
		running(t, e)
		synctest.Wait()
		id := addJob(t, e, durable.Filter{}, durable.Redrive{By: "ann", PerSecond: 100})
		time.Sleep(time.Second + 10*time.Millisecond) // a PollInterval, and the claims between the pages
		synctest.Wait()
		job := jobOf(t, e, id)
		assert.Equal(t, 1000, job.Redriven)
		assert.Zero(t, job.Skipped)
		assert.False(t, job.FinishedAt.IsZero())
		assert.EqualValues(t, 1000, redriven.Load(), "Trace.Changed")
		stats := statsOf(t, e)
		assert.InDelta(t, 100, stats.States[durable.StateDone], 100)
		enqueue(t, e, pay("comp1", "meanwhile"))
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		assertState(t, e, pay("comp1", "meanwhile").ID, durable.StateDone)
		time.Sleep(10 * time.Second)
		stats = statsOf(t, e)
		assert.Equal(t, map[durable.State]int{durable.StateDone: 1001}, stats.States)
	})
}

// D22: a job does not redrive an intent that is dead again while the job runs.
func TestRun_redrivesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sends atomic.Int64
		e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
			time.Sleep(time.Millisecond)
			sends.Add(1)
			return durable.Outcome{Class: durable.ClassDeclined}
		}))
		deadLetters(t, e, 650)
		running(t, e)
		id := addJob(t, e, durable.Filter{}, durable.Redrive{PerSecond: -1})
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2*650, sends.Load())
		assert.Equal(t, 650, jobOf(t, e, id).Redriven)
		assert.Len(t, letters(t, e, durable.Filter{}), 650)
	})
}

// D30: the store's clock is set back before a job's page is worked. Its intents are due no later than planned.
func TestRedrive_clockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gateway := new(refusing)
		e := through(gateway)
		deadLetters(t, e, 100)
		gateway.open.Store(true)
		addJob(t, e, durable.Filter{}, durable.Redrive{By: "ann", PerSecond: 10})
		durable.MoveClock(e.Store.(*durable.Memory), -time.Hour)
		runFor(t, e, 12*time.Second)
		assert.Equal(t, map[durable.State]int{durable.StateDone: 100}, statsOf(t, e).States)
	})
}

// D22: a crash between two pages neither loses nor repeats one.
func TestRun_continuesJobs(t *testing.T) {
	for _, row := range []struct {
		name string
		fail error
	}{
		{"a page fails: it is done later", errDown},
		{"the answer of a page is lost: the next one is done", errSilent},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			gateway := new(refusing)
			e := through(gateway)
			deadLetters(t, e, 900)
			gateway.open.Store(true)
			store := &shaky{Store: e.Store}
			store.set(func(verb string) error {
				if verb == "job" && store.called("job") == 3 {
					return row.fail
				}
				return nil
			})
			again := &durable.Engine{Store: store, Gateways: e.Gateways} // another process
			id := addJob(t, e, durable.Filter{}, durable.Redrive{PerSecond: -1})
			running(t, again)
			time.Sleep(time.Minute)
			job := jobOf(t, e, id)
			assert.Equal(t, 900, job.Redriven)
			assert.Zero(t, job.Skipped)
			assert.Equal(t, map[durable.State]int{durable.StateDone: 900}, statsOf(t, e).States)
		})
	}
}

// D22: a second equal request joins the job. Another request redrives nothing twice.
func TestRedrive_joins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(new(refusing))
		deadLetters(t, e, 700)
		seenAt := time.Now()
		time.Sleep(time.Minute)
		how := durable.Redrive{SeenAt: seenAt}
		first := addJob(t, e, durable.Filter{}, how)
		time.Sleep(time.Second)
		second := addJob(t, e, durable.Filter{IncludeResolved: true}, how)
		assert.Equal(t, first, second)
		assert.Zero(t, redrive(t, e, durable.Filter{Code: "51"}, how))
		assert.Equal(t, 700, jobOf(t, e, first).Redriven)
		third := addJob(t, e, durable.Filter{}, how)
		assert.NotEqual(t, first, third, "the first is finished")
	})
}

// D16: a redrive leaves out dead letters that the person cannot have seen.
func TestRedrive_leavesOutYounger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(new(refusing))
		deadLetters(t, e, 3)
		seenAt := time.Now()
		time.Sleep(time.Second)
		enqueue(t, e, pay("comp1", "younger"))
		work(t, e, 0)
		assert.Equal(t, 3, redrive(t, e, durable.Filter{}, durable.Redrive{SeenAt: seenAt}))
		open := letters(t, e, durable.Filter{})
		require.Len(t, open, 1)
		assert.Equal(t, "younger", open[0].ID.Key)
		assert.Equal(t, 1, redrive(t, e, durable.Filter{}, durable.Redrive{SeenAt: time.Now().Add(time.Hour)}))
	})
}
