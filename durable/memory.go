package durable

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Memory is a Store in the memory of one process, for tests: what it holds is lost
// with the process. The zero value is empty and ready to use. A Memory is safe for
// concurrent use and must not be copied.
//
// Its clock is time.Now, so that days pass in an instant in a bubble of
// testing/synctest. What it is given and what it hands out are copies.
type Memory struct {
	mu        sync.Mutex
	ahead     time.Duration // of time.Now
	latest    time.Time     // of all times of the clock
	promoted  time.Time     // of the last claim
	rows      map[idempotency.ID]*memoryRow
	claimable map[QueueKey][]*memoryRow // of rows, longest due first
	suspects  []*memoryRow              // those of the claimable rows, not in claimable
	workers   map[string]memoryLease
	jobs      []Job
	holds     map[string]Hold   // of persons
	waits     map[QueueKey]Hold // of providers
}

var _ Store = (*Memory)(nil)

// memoryLease is the lease of a worker.
type memoryLease struct{ renewed, expires time.Time }

// memoryRow is an intent with what belongs to it.
type memoryRow struct {
	Record
	Journal
}

// locked calls verb with the lock and the time, unless ctx has ended or an argument is invalid.
func locked[T any](ctx context.Context, m *Memory, invalid error, verb func(now time.Time) (T, error)) (T, error) {
	if err := cmp.Or(ctx.Err(), invalid); err != nil {
		var none T
		return none, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := stamp(time.Now().Add(m.ahead))
	if now.After(m.latest) {
		m.latest = now
	}
	return verb(now)
}

// moveClock sets the clock forward, or back if by is negative.
func (m *Memory) moveClock(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead += by
}

// Apply implements Store.
func (m *Memory) Apply(ctx context.Context, events []Event) ([]Result, error) {
	var invalid error
	for i := range events {
		invalid = cmp.Or(invalid, ValidEvent(&events[i]))
	}
	return locked(ctx, m, invalid, func(now time.Time) ([]Result, error) { return m.applyAll(events, now), nil })
}

func (m *Memory) applyAll(events []Event, now time.Time) []Result {
	results := make([]Result, len(events))
	for i := range events {
		results[i].Change, results[i].Err = m.apply(&events[i], now)
	}
	return results
}

// apply is what every verb does with each intent.
func (m *Memory) apply(e *Event, now time.Time) (Change, error) {
	row := m.rows[e.ID()]
	var judged *Record
	if row != nil {
		judged = &row.Record
	}
	change, err := Decide(judged, e, now)
	if err == nil && change.Step != StepKeep {
		m.write(row, &change)
	}
	change.Record = cloned(change.Record)
	return change, err
}

// cloned shares no bytes with the original.
func cloned(r Record) Record {
	r.Payload, r.Result = bytes.Clone(r.Payload), bytes.Clone(r.Result)
	return r
}

func (m *Memory) write(row *memoryRow, c *Change) {
	if m.rows == nil {
		m.rows, m.claimable = make(map[idempotency.ID]*memoryRow), make(map[QueueKey][]*memoryRow)
	}
	if row == nil {
		row = new(memoryRow)
		m.rows[c.Record.ID] = row
	}
	if key, place, there := m.place(row); there {
		m.claimable[key] = slices.Delete(m.claimable[key], place, place+1)
	}
	m.suspects = slices.DeleteFunc(m.suspects, func(suspect *memoryRow) bool { return suspect == row })
	row.Record = cloned(c.Record)
	row.Journal.Add(c)
	switch {
	case !row.State.Claimable():
	case row.Suspect():
		m.suspects = append(m.suspects, row)
	default:
		key, place, _ := m.place(row)
		m.claimable[key] = slices.Insert(m.claimable[key], place, row)
	}
}

// place is where a row is in its queue, or belongs. A claim does not sort the queues: they may be long.
func (m *Memory) place(row *memoryRow) (key QueueKey, place int, there bool) {
	key = QueueKeyOf(&row.Record)
	place, there = slices.BinarySearchFunc(m.claimable[key], row, func(a, b *memoryRow) int {
		return cmp.Or(a.NextAt.Compare(b.NextAt), compareIDs(a.ID, 0, b.ID, 0))
	})
	return key, place, there
}

// beat renews a lease.
func (m *Memory) beat(worker string, now time.Time, lease time.Duration) {
	if m.workers == nil {
		m.workers = make(map[string]memoryLease)
	}
	m.workers[worker] = memoryLease{now, now.Add(lease)}
}

// Claim implements Store.
func (m *Memory) Claim(ctx context.Context, claim Claim) (Claimed, error) {
	return locked(ctx, m, claim.Validate(), func(now time.Time) (Claimed, error) {
		m.beat(claim.Worker, now, claim.Lease)
		claimed := Claimed{Now: now, Held: m.held(now), Waiting: m.waiting(now)}
		claim.Wait(claimed.Waiting)
		rows := m.choose(&claim, now)
		if suspect := m.dueSuspect(&claim, now); claim.Alone {
			rows = suspect
		} else {
			claimed.Suspect = suspect != nil
		}
		for _, row := range rows {
			if change, err := m.apply(new(claim.Event(&row.Record)), now); err == nil {
				claimed.Changes = append(claimed.Changes, change)
			}
		}
		return claimed, nil
	})
}

// dueSuspect returns the suspect that the claim would take alone. nil: there is none.
func (m *Memory) dueSuspect(claim *Claim, now time.Time) []*memoryRow {
	for _, row := range m.suspects {
		wanted := claim.ID == nil || *claim.ID == row.ID
		if wanted && !m.isHeld(row.Gateway, now) && claim.MayTakeAlone(&row.Record, now) {
			return []*memoryRow{row}
		}
	}
	return nil
}

// choose returns the rows that the claim is about. None is a suspect.
func (m *Memory) choose(claim *Claim, now time.Time) []*memoryRow {
	if claim.ID != nil {
		row := m.rows[*claim.ID]
		if row == nil || row.Suspect() || !row.State.Claimable() || !row.Due(now) || m.isHeld(row.Gateway, now) || !claim.Permits(&row.Record) {
			return nil
		}
		return []*memoryRow{row}
	}
	var (
		queues  [][]*memoryRow
		queries []*memoryRow
	)
	m.promote(now)
	for _, key := range slices.SortedFunc(maps.Keys(m.claimable), claim.compareQueues) {
		due := m.due(m.claimable[key], now)
		switch {
		case m.isHeld(key.Gateway, now):
		case claim.waits(key):
			queries = append(queries, due...)
		default:
			queues = append(queues, due[:min(len(due), claim.QueueLimit(key))])
		}
	}
	record := func(row *memoryRow) *Record { return &row.Record }
	return AddQueries(claim, FairOrder(claim, queues, record), queries, record)
}

// due returns those of a queue that are due.
func (m *Memory) due(queue []*memoryRow, now time.Time) []*memoryRow {
	due := queue[:dueUntil(queue, m.latest)]
	if m.latest.After(now) { // the clock was set back
		due = slices.DeleteFunc(slices.Clone(due), func(row *memoryRow) bool { return !row.Due(now) })
	}
	return due
}

// dueUntil returns how many rows of a queue are due at that time.
func dueUntil(queue []*memoryRow, at time.Time) int {
	n, _ := slices.BinarySearchFunc(queue, at, func(row *memoryRow, at time.Time) int { return cmp.Or(row.NextAt.Compare(at), -1) })
	return n
}

// promote notes of scheduled rows that they are due, for a clock that is set back before they are claimed.
func (m *Memory) promote(now time.Time) {
	for _, queue := range m.claimable {
		until := dueUntil(queue, now)
		for _, row := range queue[min(dueUntil(queue, m.promoted), until):until] {
			if row.Scheduled() {
				row.UpdatedAt = now
			}
		}
	}
	m.promoted = now
}

// compareQueues is the order of the rounds: first the scopes behind the cursor of their gateway.
func (c *Claim) compareQueues(a, b QueueKey) int {
	turn := func(q QueueKey) int {
		if q.Scope > c.Allowance(q.Gateway).Cursor {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(turn(a), turn(b)), cmp.Compare(a.Scope, b.Scope))
}

// Heartbeat implements Store.
func (m *Memory) Heartbeat(ctx context.Context, worker string, lease time.Duration) (time.Time, error) {
	return locked(ctx, m, ValidateHeartbeat(worker, lease), func(now time.Time) (time.Time, error) {
		m.beat(worker, now, lease)
		return now, nil
	})
}

// Reap implements Store.
func (m *Memory) Reap(ctx context.Context, limit int) ([]Change, error) {
	return locked(ctx, m, nil, func(now time.Time) (changes []Change, _ error) {
		for name, lease := range m.workers {
			if back := lease.renewed.Sub(now); back > 0 { // the clock was set back
				lease = memoryLease{now, lease.expires.Add(-back)}
				m.workers[name] = lease
			}
			if now.Before(lease.expires) {
				continue
			}
			for _, row := range m.rows {
				if row.Worker != name {
					continue
				}
				if len(changes) >= limit {
					return changes, nil
				}
				e := Event{Kind: EventLeaseExpired, Intent: Intent{ID: row.ID}, Worker: name}
				if change, err := m.apply(&e, now); err == nil {
					changes = append(changes, change)
				}
			}
			delete(m.workers, name)
		}
		return changes, nil
	})
}

// Rebase implements Store.
func (m *Memory) Rebase(ctx context.Context, limit int) (int, error) {
	return locked(ctx, m, nil, func(now time.Time) (n int, _ error) {
		for _, row := range m.rows {
			waits := row.State == StateWaiting || row.State == StateUnknown
			if n < limit && waits && row.Scheduled() && row.UpdatedAt.After(now) {
				moved := Change{Record: row.Record}
				moved.Record.followClock(now)
				m.write(row, &moved)
				n++
			}
		}
		return n, nil
	})
}

// Find implements Store.
func (m *Memory) Find(ctx context.Context, id idempotency.ID) (Record, error) {
	return locked(ctx, m, ValidID(id), func(time.Time) (Record, error) {
		if row := m.rows[id]; row != nil {
			return cloned(row.Record), nil
		}
		return Record{}, ErrNotFound
	})
}

// Attempts implements Store.
func (m *Memory) Attempts(ctx context.Context, id idempotency.ID) ([]Attempt, error) {
	return locked(ctx, m, ValidID(id), func(time.Time) ([]Attempt, error) {
		if row := m.rows[id]; row != nil {
			return slices.Clone(row.Journal.Attempts), nil
		}
		return nil, ErrNotFound
	})
}

// Sweep implements Store.
func (m *Memory) Sweep(ctx context.Context, ttl time.Duration, limit int) (int, error) {
	return locked(ctx, m, nil, func(now time.Time) (swept int, _ error) {
		for id, row := range m.rows {
			if swept >= limit {
				break
			}
			if row.State.Final() && row.UpdatedAt.Before(now.Add(-ttl)) {
				delete(m.rows, id)
				swept++
			}
		}
		return swept, nil
	})
}
