package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

const (
	// raceKeys is the number of records in a race: with some of them, operations meet.
	raceKeys = 24

	// racers is the number of racers for each record.
	racers = 6
)

// testRaces runs operations on the same record at the same time. The record and all
// replies must be those of one order. A claim may also be answered with
// DecisionInProgress.
func (k *kit) testRaces() {
	reserve := racer{do: func(ctx context.Context, store idempotency.Store, lease idempotency.Lease) (answer reply) {
		answer.reservation, answer.err = store.Reserve(ctx, k.claim(lease.ID))
		return answer
	}}
	end := make(map[string]racer)
	for _, o := range operations() {
		end[o.name] = racer{&o, func(ctx context.Context, store idempotency.Store, lease idempotency.Lease) reply {
			return reply{err: o.do(ctx, store, lease)}
		}}
	}
	renew, release := end["Renew"], end["Release"]
	finish, fail, doubt := end["Complete as completed"], end["Complete as failed_final"], end["Complete as unknown"]
	for _, row := range []struct {
		states []string
		with   []racer
	}{
		{[]string{
			"absent", "failed retryable", "in progress, lease over, Reexecute", "in progress, lease over, MarkUnknown",
			"in progress, lease and TTL over, Reexecute",
		}, slices.Repeat([]racer{reserve}, racers)},
		{[]string{"in progress, lease over, Reexecute", "in progress, lease over, MarkUnknown"}, []racer{renew, reserve}},
		{[]string{"in progress, lease over, Reexecute", "in progress, lease over, MarkUnknown"}, []racer{finish, reserve}},
		{[]string{"in progress, lease over, Reexecute"}, []racer{doubt, reserve}},
		{[]string{"in progress, lease over, Reexecute", "in progress, lease over, MarkUnknown"}, []racer{release, reserve}},
		{[]string{"in progress"}, []racer{release, reserve, reserve}},
		{[]string{"in progress"}, slices.Repeat([]racer{finish}, racers)},
		{[]string{"in progress", "unknown"}, []racer{release, fail, release, finish, release, fail}},
		{[]string{"completed, TTL over", "in progress, lease and TTL over, Resume"}, []racer{reserve, reserve}},
	} {
		for _, state := range row.states {
			k.test(fmt.Sprint(state, row.with), func(k *kit) { k.race(state, row.with) })
		}
	}
}

// racer is an operation on a record, which others run on it at the same time.
type racer struct {
	*operation // nil: a claim

	do func(ctx context.Context, store idempotency.Store, lease idempotency.Lease) reply
}

func (r racer) String() string {
	if r.operation == nil {
		return "Reserve"
	}
	return r.name
}

// reply is a store's reply to a racer.
type reply struct {
	err         error
	reservation idempotency.Reservation
}

// race runs the racers on each of some new records in a state, while others sweep and reap.
func (k *kit) race(name string, with []racer) {
	k.drain()
	k.reapAll()
	i := slices.IndexFunc(states(), func(s state) bool { return s.name == name })
	subjects := k.prepare(slices.Repeat(states()[i:i+1], raceKeys))
	replies := make([][]reply, raceKeys)
	for i := range replies {
		replies[i] = make([]reply, len(with))
	}
	var done atomic.Int64
	var reaped [2][]idempotency.Record
	ctx := k.patient()
	all := raceKeys * len(with)
	together(all+len(reaped), func(n int) {
		if n < all {
			key, i := n%raceKeys, n/raceKeys
			replies[key][i] = with[i].do(ctx, k.handle(n/2), subjects[key].lease)
			done.Add(1)
			return
		}
		for last := false; !last; breathe(ctx) {
			last = done.Load() == int64(all)
			found, err := k.handle(n).Reap(ctx, 3)
			reaped[n-all] = append(reaped[n-all], found...)
			_, failed := k.handle(n).Sweep(ctx, 3)
			if err := errors.Join(err, failed); err != nil {
				k.Errorf("Reap or Sweep: got %v, want no error", err)
				return
			}
		}
	})
	for key := range subjects {
		s := &subjects[key]
		after := k.find(s.lease.ID)
		o := &order{with: with, replies: replies[key], lease: s.lease, after: after}
		for _, r := range slices.Concat(reaped[0], reaped[1]) {
			if r.ID == s.lease.ID {
				o.reaped++
			}
		}
		if !o.exists(moment{Record: s.before, dead: s.dead}, make([]bool, len(with))) {
			k.Errorf("no order of %v explains the replies:\n%+v\nreaped %d times\nbefore %+v\nafter  %+v", with, o.replies, o.reaped, s.before, after)
		}
	}
}

// moment is a record between two operations of a race. A Status of zero: there is none, or an expired one.
type moment struct {
	idempotency.Record

	dead    bool // the lease is over
	changed bool
}

// order looks for an order of the racers in which each has its reply, and the record is at the end as it was found.
type order struct {
	with    []racer
	replies []reply
	reaped  int               // how often Reap has returned the record
	lease   idempotency.Lease // before the race
	after   idempotency.Record
}

// exists reports whether there is an order of the racers that are not done.
func (o *order) exists(now moment, done []bool) bool {
	if o.reaped == 1 && now.dead && !now.Takeover.Repeats() {
		rest := *o
		rest.reaped = 0
		if rest.exists(now.marked(), done) {
			return true
		}
	}
	for i := range o.with {
		next, ok := o.follows(now, i)
		if done[i] || !ok {
			continue
		}
		done[i] = true
		if o.exists(next, done) {
			return true
		}
		done[i] = false
	}
	return !slices.Contains(done, false) && o.reaped == 0 && now.changed && now.Status == o.after.Status &&
		now.Lease() == o.after.Lease() && reflect.DeepEqual(now.Result, o.after.Result)
}

// marked is the moment after a dead execution has become Unknown.
func (m moment) marked() moment {
	m.Status, m.Owner, m.dead, m.changed = idempotency.Unknown, "", false, true
	m.Generation++
	return m
}

// follows reports whether the i-th reply is right at a moment, and returns the next one.
func (o *order) follows(now moment, i int) (moment, bool) {
	if of := o.with[i].operation; of != nil {
		return o.follow(now, of, o.replies[i].err)
	}
	answer := &o.replies[i].reservation
	switch {
	case o.replies[i].err != nil:
		return now, false
	case answer.Decision == idempotency.DecisionInProgress:
		return now, true
	case answer.Decision == idempotency.DecisionDone:
		return now, now.Status.Finished()
	case answer.LeaseExpired:
		return now.marked(), now.dead && !now.Takeover.Repeats()
	case answer.Decision == idempotency.DecisionUnknown:
		return now, now.Status == idempotency.Unknown
	}
	// An expired record passes on its generation until it is swept.
	granted := answer.Decision == idempotency.DecisionAcquired && (now.Status == 0 || now.Status == idempotency.FailedRetryable || now.dead && now.Takeover.Repeats())
	next := answer.Record.Generation == now.Generation+1 || now.Status == 0 && answer.Record.Generation == o.lease.Generation+1
	return moment{Record: answer.Record, changed: true}, granted && next
}

// follow is follows for an operation of the holder of the lease, which may be lost.
func (o *order) follow(now moment, of *operation, err error) (moment, bool) {
	holds := now.Lease() == o.lease && slices.Contains(of.from, now.Status)
	if err != nil {
		return now, errors.Is(err, idempotency.ErrLeaseLost) && !holds
	}
	now.dead, now.changed = false, true
	if of.to != 0 {
		now.Status, now.Result = of.to, of.outcome.Stored()
	}
	return now, holds
}
