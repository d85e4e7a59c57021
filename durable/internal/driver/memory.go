package driver

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
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
	mu      sync.Mutex
	rows    map[idempotency.ID]*memoryRow
	scopes  []string                           // that have ever had an intent, in order
	due     map[string]map[string]*memoryQueue // by gateway and scope
	workers map[string]*memoryWorker
	jobs    []Job
	holds   map[string]Hold   // of persons
	waits   map[QueueKey]Hold // of providers
}

var _ Store = (*Memory)(nil)

// memoryRow is an intent with what belongs to it.
type memoryRow struct {
	Record

	attempts []Attempt
	letters  []DeadLetter
	place    int // in its lane's queue; -1: it is not there
}

type memoryWorker struct {
	expires time.Time
	held    map[*memoryRow]struct{}
}

// Apply implements Store.
func (m *Memory) Apply(ctx context.Context, events []Event) ([]Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i := range events {
		if err := ValidEvent(&events[i]); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	results := make([]Result, len(events))
	for i := range events {
		results[i].Change, results[i].Err = m.apply(&events[i], now)
	}
	return results, nil
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
	if row == nil {
		row = m.insert(c.Record.ID)
	} else {
		m.unlink(row)
	}
	row.Record = cloned(c.Record)
	m.link(row)
	if c.StartedAttempt != nil {
		row.attempts = append(row.attempts, *c.StartedAttempt)
	}
	if ended := c.FinishedAttempt; ended != nil {
		for i := range row.attempts {
			if a := &row.attempts[i]; a.Generation == ended.Generation {
				a.FinishedAt, a.Class, a.Code = ended.FinishedAt, ended.Class, ended.Code
				a.Status, a.Reference, a.Error = ended.Status, ended.Reference, ended.Error
			}
		}
	}
	if closed := c.Resolved; closed != nil {
		for i := range row.letters {
			if l := &row.letters[i]; l.Number == closed.Number {
				l.RedrivenAt, l.By, l.Note = closed.RedrivenAt, closed.By, closed.Note
			}
		}
	}
	if c.DeadLettered != nil {
		row.letters = append(row.letters, *c.DeadLettered)
	}
	if c.Erased {
		for i := range row.attempts {
			row.attempts[i].Error = ""
		}
		for i := range row.letters {
			if l := &row.letters[i]; l.Note != NoteErased {
				l.Note = ""
			}
		}
	}
}

func (m *Memory) insert(id idempotency.ID) *memoryRow {
	if m.rows == nil {
		m.rows = make(map[idempotency.ID]*memoryRow)
		m.due = make(map[string]map[string]*memoryQueue)
	}
	row := &memoryRow{place: -1}
	m.rows[id] = row
	if place, found := slices.BinarySearch(m.scopes, id.Scope); !found {
		m.scopes = slices.Insert(m.scopes, place, id.Scope)
	}
	return row
}

// queue is that of the row's lane.
func (m *Memory) queue(row *memoryRow) *memoryQueue {
	scopes := m.due[row.Gateway]
	if scopes == nil {
		scopes = make(map[string]*memoryQueue)
		m.due[row.Gateway] = scopes
	}
	if scopes[row.ID.Scope] == nil {
		scopes[row.ID.Scope] = new(memoryQueue)
	}
	return scopes[row.ID.Scope]
}

// unlink takes the row out of where its state has put it, and link puts it there.
func (m *Memory) unlink(row *memoryRow) {
	if row.place >= 0 {
		heap.Remove(m.queue(row), row.place)
	}
	if row.Worker != "" {
		delete(m.worker(row.Worker).held, row)
	}
}

func (m *Memory) link(row *memoryRow) {
	if row.State.Claimable() {
		heap.Push(m.queue(row), row)
	}
	if row.Worker != "" {
		m.worker(row.Worker).held[row] = struct{}{}
	}
}

func (m *Memory) worker(name string) *memoryWorker {
	w := m.workers[name]
	if w == nil {
		w = &memoryWorker{held: make(map[*memoryRow]struct{})}
		if m.workers == nil {
			m.workers = make(map[string]*memoryWorker)
		}
		m.workers[name] = w
	}
	return w
}

// Claim implements Store.
func (m *Memory) Claim(ctx context.Context, claim Claim) (Claimed, error) {
	if err := ctx.Err(); err != nil {
		return Claimed{}, err
	}
	if err := claim.Validate(); err != nil {
		return Claimed{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.worker(claim.Worker).expires = now.Add(claim.Lease)
	claimed := Claimed{Now: stamp(now), Held: m.held(now), Waiting: m.waiting(now)}
	claim.Wait(claimed.Waiting)
	for _, row := range m.choose(&claim, claimed.Now) {
		e := claim.Event(&row.Record)
		if change, err := m.apply(&e, now); err == nil {
			claimed.Changes = append(claimed.Changes, change)
		}
	}
	return claimed, nil
}

// choose returns the rows that the claim is about.
func (m *Memory) choose(claim *Claim, now time.Time) []*memoryRow {
	if claim.ID != nil {
		row := m.rows[*claim.ID]
		if row == nil || !row.State.Claimable() || now.Before(row.NextAt) || m.isHeld(row.Gateway, now) || !claim.Permits(&row.Record) {
			return nil
		}
		return []*memoryRow{row}
	}
	record := func(row *memoryRow) *Record { return &row.Record }
	var (
		queues  [][]*memoryRow
		queries []*memoryRow
	)
	for gateway, scopes := range m.due {
		if m.isHeld(gateway, now) {
			continue
		}
		queues = append(queues, m.queues(claim, scopes, gateway, now)...)
		for _, queue := range scopes {
			if len(claim.Waiting) > 0 {
				queries = append(queries, queue.first(len(*queue), now)...)
			}
		}
	}
	return AddQueries(claim, FairOrder(claim, queues, record), queries, record)
}

// queues returns what is due of a gateway, in the order of its round.
func (m *Memory) queues(claim *Claim, scopes map[string]*memoryQueue, gateway string, now time.Time) (queues [][]*memoryRow) {
	first, found := slices.BinarySearch(m.scopes, claim.Allowance(gateway).Cursor)
	if found {
		first++
	}
	for i := range m.scopes {
		scope := m.scopes[(first+i)%len(m.scopes)]
		if queue := scopes[scope]; queue != nil {
			if rows := queue.first(claim.QueueLimit(QueueKey{Scope: scope, Gateway: gateway}), now); len(rows) > 0 {
				queues = append(queues, rows)
			}
		}
	}
	return queues
}

// Heartbeat implements Store.
func (m *Memory) Heartbeat(ctx context.Context, worker string, lease time.Duration) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	if err := ValidateHeartbeat(worker, lease); err != nil {
		return time.Time{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.worker(worker).expires = now.Add(lease)
	return stamp(now), nil
}

// Reap implements Store.
func (m *Memory) Reap(ctx context.Context, limit int) ([]Change, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	var changes []Change
	for name, w := range m.workers {
		if now.Before(w.expires) {
			continue
		}
		for row := range w.held {
			if len(changes) >= limit {
				return changes, nil
			}
			e := Event{Kind: EventLeaseExpired, Intent: Intent{ID: row.ID}, Worker: name}
			if change, err := m.apply(&e, now); err == nil {
				changes = append(changes, change)
			}
		}
		if len(w.held) == 0 {
			delete(m.workers, name)
		}
	}
	return changes, nil
}

// Find implements Store.
func (m *Memory) Find(ctx context.Context, id idempotency.ID) (Record, error) {
	row, err := m.find(ctx, id)
	if err != nil {
		return Record{}, err
	}
	defer m.mu.Unlock()
	return cloned(row.Record), nil
}

// find returns with the lock held, if it finds.
func (m *Memory) find(ctx context.Context, id idempotency.ID) (*memoryRow, error) {
	if err := cmp.Or(ctx.Err(), ValidID(id)); err != nil {
		return nil, err
	}
	m.mu.Lock()
	row := m.rows[id]
	if row == nil {
		m.mu.Unlock()
		return nil, ErrNotFound
	}
	return row, nil
}

// Attempts implements Store.
func (m *Memory) Attempts(ctx context.Context, id idempotency.ID) ([]Attempt, error) {
	row, err := m.find(ctx, id)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	return slices.Clone(row.attempts), nil
}

// Sweep implements Store.
func (m *Memory) Sweep(ctx context.Context, ttl time.Duration, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := time.Now().Add(-ttl)
	swept := 0
	for id, row := range m.rows {
		if swept >= limit {
			break
		}
		if row.State.Final() && row.UpdatedAt.Before(old) {
			delete(m.rows, id)
			swept++
		}
	}
	return swept, nil
}

// memoryQueue is what may be claimed in a scope, a heap by when it is due.
type memoryQueue []*memoryRow

func (q memoryQueue) Len() int { return len(q) }
func (q memoryQueue) Less(i, j int) bool {
	a, b := q[i], q[j]
	if c := a.NextAt.Compare(b.NextAt); c != 0 {
		return c < 0
	}
	return compareIDs(a.ID, 0, b.ID, 0) < 0
}

func (q memoryQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push implements heap.Interface.
func (q *memoryQueue) Push(x any) {
	row, _ := x.(*memoryRow)
	row.place = len(*q)
	*q = append(*q, row)
}

// Pop implements heap.Interface.
func (q *memoryQueue) Pop() any {
	last := len(*q) - 1
	row := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	row.place = -1
	return row
}

// first is the n that are due longest.
func (q *memoryQueue) first(n int, now time.Time) []*memoryRow {
	var rows []*memoryRow
	for len(rows) < n && len(*q) > 0 && !now.Before((*q)[0].NextAt) {
		row, _ := heap.Pop(q).(*memoryRow)
		rows = append(rows, row)
	}
	for _, row := range rows {
		heap.Push(q, row)
	}
	return rows
}
