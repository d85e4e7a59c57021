package idempotency

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a Store in the memory of one process, for tests and for services that
// may lose their keys when they exit. The zero value is empty. A Memory is safe for
// concurrent use and must not be copied. It is not a Transactor.
//
// Its clock is time.Now, so time is virtual in a bubble of testing/synctest. Records
// that have expired count as absent; Sweep, or a claim that needs their memory,
// deletes them.
type Memory struct {
	// MaxKeys is the maximum number of records. Zero means 65,536. A negative number means no
	// limit. Set it before the first use. A scope may have at most eight times as many records as
	// are free, so one scope leaves a ninth to the others. A claim for a new key beyond that
	// deletes records that have expired; if there are none, it fails with ErrStoreBusy. A Memory
	// never deletes a record before its time. A record takes some 500 bytes and its result.
	MaxKeys int

	mu      sync.Mutex
	records map[ID]*memoryRecord
	scopes  map[string]int // the number of records of each scope
	expiry  memoryQueue
	open    map[ID]*memoryRecord // StatusInProgress or Unknown
}

var _ Store = (*Memory)(nil)

const (
	defaultMaxKeys = 1 << 16

	// sweepBatch is the number of records deleted under one lock, so that claims wait
	// for no more than these.
	sweepBatch = 16

	// recordsPerFree is the number of records that a scope may have for each free one.
	recordsPerFree = 8
)

// memoryRecord is a record and its position in the expiry queue.
type memoryRecord struct {
	Record

	expired  time.Time // when the record will have expired, if it is in the queue
	position int       // in the queue; -1: not there, because it never expires
}

// Check implements Store. A Memory can always be used.
func (m *Memory) Check(ctx context.Context) error { return ctx.Err() }

// Reserve implements Store.
func (m *Memory) Reserve(ctx context.Context, claim Claim) (Reservation, error) {
	if err := ctx.Err(); err != nil {
		return Reservation{}, err
	}
	if err := claim.Validate(); err != nil {
		return Reservation{}, err
	}
	reservation, err := m.reserve(&claim)
	reservation.Record.Result = reservation.Record.Result.clone()
	return reservation, err
}

func (m *Memory) reserve(claim *Claim) (Reservation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now() // under the lock, so that a record's times never go backwards
	var seen *Record
	r := m.records[claim.ID]
	if r != nil {
		seen = &r.Record
	}
	step, reservation := Decide(seen, claim, now)
	switch step {
	case StepLeave:
	case StepInsert:
		if r = m.insert(claim, now); r == nil {
			return Reservation{}, fmt.Errorf("%w: Memory has %d records, %d of them of the scope, and none has expired (MaxKeys)",
				ErrStoreBusy, len(m.records), m.scopes[claim.Scope])
		}
	case StepTake:
		id := r.ID // its own copy of the names
		r.Record = claim.Begun(&r.Record, now)
		r.ID = id
	case StepMarkUnknown:
		r.markUnknown(now)
	}
	if step != StepLeave {
		m.changed(r)
	}
	reservation.Record = r.Record
	return reservation, nil
}

// insert adds the claim's record, or returns nil if there is no space. The record's
// names are copies, because those of a request may be a part of a large header.
func (m *Memory) insert(claim *Claim, now time.Time) *memoryRecord {
	if !m.fits(claim.Scope) && (m.sweep(sweepBatch, now) == 0 || !m.fits(claim.Scope)) {
		return nil
	}
	r := &memoryRecord{Record: claim.Begun(nil, now), position: -1}
	r.ID = ID{Scope: strings.Clone(claim.Scope), Operation: strings.Clone(claim.Operation), Key: strings.Clone(claim.Key)}
	if m.records == nil {
		m.records, m.open, m.scopes = make(map[ID]*memoryRecord), make(map[ID]*memoryRecord), make(map[string]int)
	}
	m.records[r.ID] = r
	m.scopes[r.Scope]++
	return r
}

// fits reports whether a scope may have one more record.
func (m *Memory) fits(scope string) bool {
	limit := cmp.Or(m.MaxKeys, defaultMaxKeys)
	return limit < 0 || m.scopes[scope] < recordsPerFree*(limit-len(m.records))
}

func (r *Record) markUnknown(now time.Time) {
	r.Status = Unknown
	r.Owner = ""
	r.Generation++
	r.Updated = now
}

// Renew implements Store.
func (m *Memory) Renew(ctx context.Context, lease Lease, d time.Duration) error {
	if err := ValidLease(d); err != nil {
		return err
	}
	return m.write(ctx, &lease, func(r *Record, now time.Time) bool {
		if r.Status != StatusInProgress {
			return false
		}
		r.LeaseExpires = now.Add(d)
		return true
	})
}

// Complete implements Store.
func (m *Memory) Complete(ctx context.Context, lease Lease, outcome Outcome) error {
	if err := outcome.Validate(); err != nil {
		return err
	}
	result := outcome.Stored()
	result = result.clone()
	return m.write(ctx, &lease, func(r *Record, now time.Time) bool {
		if r.Status != StatusInProgress && (r.Status != Unknown || outcome.Status == Unknown) {
			return false
		}
		switch {
		case outcome.TTL != 0:
			r.Expires = now.Add(outcome.TTL)
		case r.Status == Unknown:
			r.Expires = now.Add(r.Expires.Sub(r.Started))
		}
		r.Status = outcome.Status
		r.Result = result
		return true
	})
}

// Release implements Store.
func (m *Memory) Release(ctx context.Context, lease Lease) error {
	return m.write(ctx, &lease, func(r *Record, _ time.Time) bool {
		if r.Status != StatusInProgress && r.Status != Unknown {
			return false
		}
		r.Status = FailedRetryable
		return true
	})
}

// write changes the record that the lease holds. change runs under the lock and
// returns false if the record's status does not allow the change.
func (m *Memory) write(ctx context.Context, lease *Lease, change func(r *Record, now time.Time) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := lease.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	r := m.records[lease.ID]
	if r == nil || r.Expired(now) || r.Lease() != *lease || !change(&r.Record, now) {
		return ErrLeaseLost
	}
	r.Updated = now
	m.changed(r)
	return nil
}

// Load implements Store.
func (m *Memory) Load(ctx context.Context, id ID) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	if err := id.Validate(); err != nil {
		return Record{}, err
	}
	record, ok := m.load(id)
	if !ok {
		return Record{}, ErrNotFound
	}
	// The result is copied after the lock: it is replaced, but never changed.
	record.Result = record.Result.clone()
	return record, nil
}

func (m *Memory) load(id ID) (Record, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[id]
	if r == nil || r.Expired(time.Now()) {
		return Record{}, false
	}
	return r.Record, true
}

// Reap implements Store.
func (m *Memory) Reap(ctx context.Context, limit int) ([]Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	var reaped []Record
	for _, r := range m.open {
		if len(reaped) >= limit {
			break
		}
		if r.Lapsed(now) && !r.Takeover.Repeats() {
			r.markUnknown(now)
			m.changed(r)
			reaped = append(reaped, r.Record)
		}
	}
	return reaped, nil
}

// Unknown implements Store. It lists the records that are Unknown at its beginning.
func (m *Memory) Unknown(ctx context.Context, scope string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for _, id := range m.unknown(scope) {
			record, err := m.Load(ctx, id)
			if err == nil && record.Status != Unknown || errors.Is(err, ErrNotFound) {
				continue // resolved meanwhile
			}
			if !yield(record, err) || err != nil {
				return
			}
		}
	}
}

func (m *Memory) unknown(scope string) []ID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []ID
	for id, r := range m.open {
		if r.Status == Unknown && (scope == "" || id.Scope == scope) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b ID) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Key, b.Key))
	})
	return ids
}

// Sweep implements Store.
func (m *Memory) Sweep(ctx context.Context, limit int) (int, error) {
	swept := 0
	for swept < limit {
		if err := ctx.Err(); err != nil {
			return swept, err
		}
		m.mu.Lock()
		n := m.sweep(min(sweepBatch, limit-swept), time.Now())
		m.mu.Unlock()
		if n == 0 {
			break
		}
		swept += n
	}
	return swept, ctx.Err()
}

func (m *Memory) sweep(limit int, now time.Time) int {
	n := 0
	for ; n < limit && len(m.expiry) > 0 && m.expiry[0].Expired(now); n++ {
		r := heap.Pop(&m.expiry).(*memoryRecord) //nolint:errcheck // Pop below returns nothing else.
		delete(m.records, r.ID)
		delete(m.open, r.ID)
		if m.scopes[r.Scope]--; m.scopes[r.Scope] == 0 {
			delete(m.scopes, r.Scope)
		}
	}
	if n > 0 && len(m.records) == 0 {
		m.records, m.expiry, m.open, m.scopes = nil, nil, nil, nil // maps and slices do not shrink
	}
	return n
}

func (r *Result) clone() Result {
	c := *r
	c.Header = r.Header.Clone()
	c.Body = bytes.Clone(r.Body)
	return c
}

// changed updates the indexes for Sweep, Reap and Unknown after a change.
func (m *Memory) changed(r *memoryRecord) {
	if r.Status == StatusInProgress || r.Status == Unknown {
		m.open[r.ID] = r
	} else {
		delete(m.open, r.ID)
	}
	expired, never := r.Expires, r.Status == Unknown
	if r.Status == StatusInProgress {
		never = !r.Takeover.Repeats()
		if expired.Before(r.LeaseExpires) {
			expired = r.LeaseExpires
		}
	}
	switch {
	case never:
		if r.position >= 0 {
			heap.Remove(&m.expiry, r.position)
		}
	case r.position < 0:
		r.expired = expired
		heap.Push(&m.expiry, r)
	case !r.expired.Equal(expired):
		r.expired = expired
		heap.Fix(&m.expiry, r.position)
	}
}

// memoryQueue is a heap of records, ordered by expiry.
type memoryQueue []*memoryRecord

func (q memoryQueue) Len() int           { return len(q) }
func (q memoryQueue) Less(i, j int) bool { return q[i].expired.Before(q[j].expired) }

func (q memoryQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].position, q[j].position = i, j
}

// Push is for container/heap.
func (q *memoryQueue) Push(x any) {
	r := x.(*memoryRecord) //nolint:errcheck // changed pushes nothing else.
	r.position = len(*q)
	*q = append(*q, r)
}

// Pop is for container/heap.
func (q *memoryQueue) Pop() any {
	last := len(*q) - 1
	r := (*q)[last]
	r.position = -1
	(*q)[last] = nil
	*q = (*q)[:last]
	return r
}
