package driver

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Memory is a Store in the memory of one process: for tests, and for a service
// of one process that may forget its keys when it ends. The zero value is empty
// and ready to use. A Memory is safe for concurrent use and must not be copied.
//
// Its clock is time.Now, so that days pass in an instant in a bubble of
// testing/synctest. What it is given and what it hands out are copies. It is no
// Transactor: there is nothing that the work could share a transaction with.
//
// A record takes some 500 bytes and its result. Records that have expired count
// as absent but are kept until Sweep, which nobody calls by himself.
type Memory struct {
	once   sync.Once
	seed   maphash.Seed
	sweeps atomic.Uint64
	shards [memoryShards]memoryShard
}

var _ Store = (*Memory)(nil)

const (
	// memoryShards is how many parts have a lock each. A sweep holds one of them
	// nearly all the time, and a claim that finds its own held must be woken, which
	// takes a hundred times as long as the claim: so few enough must, for the p99 of
	// claims to stay as it is.
	memoryShards = 256

	// memoryBatch is how many records are deleted under one lock.
	memoryBatch = 4
)

// memoryShard is a part of the records: those whose names hash to it.
type memoryShard struct {
	mu      sync.Mutex
	records map[ID]*memoryRecord
	queue   memoryQueue
	pending map[ID]*memoryRecord // in progress, or Unknown
}

// memoryRecord is a record and its place in the queue of those that will expire.
type memoryRecord struct {
	Record

	// due is when the record will have expired. It has a meaning in the queue.
	due time.Time

	// place is the index in the queue; -1: it never expires, and is not there.
	place int
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
	reservation := m.shard(&claim.ID).reserve(&claim)
	reservation.Record.Result = reservation.Record.Result.clone()
	return reservation, nil
}

func (s *memoryShard) reserve(claim *Claim) Reservation {
	s.mu.Lock()
	defer s.mu.Unlock()

	// Under the lock, so that a record's times never go backwards.
	now := time.Now()
	var judged *Record
	r := s.records[claim.ID]
	if r != nil {
		judged = &r.Record
	}
	step, reservation := Decide(judged, claim, now)
	switch step {
	case Leave:
	case Insert:
		r = s.insert(claim.ID)
		r.begin(claim, now)
	case Take:
		r.begin(claim, now)
	case StepMarkUnknown:
		r.abandon(now)
	}
	if step != Leave {
		s.changed(r)
	}
	reservation.Record = r.Record
	return reservation
}

// insert makes a record without an execution. Its names are copies: those of a
// request are often a piece of a header that need not be kept.
func (s *memoryShard) insert(id ID) *memoryRecord {
	names := id.Scope + id.Operation + id.Key
	if len(names) == len(id.Key) {
		names = strings.Clone(names) // joined to nothing, it is still the request's
	}
	scope, key := len(id.Scope), len(names)-len(id.Key)
	id = ID{Scope: names[:scope], Operation: names[scope:key], Key: names[key:]}
	r := &memoryRecord{Record: Record{ID: id}, place: -1}
	if s.records == nil {
		s.records = make(map[ID]*memoryRecord)
	}
	s.records[id] = r
	return r
}

// begin gives the record to the claimant, as a new execution.
func (r *Record) begin(claim *Claim, now time.Time) {
	*r = Record{
		ID:           r.ID,
		Fingerprint:  claim.Fingerprint,
		Status:       InProgress,
		Owner:        claim.Owner,
		Generation:   r.Generation + 1,
		LeaseExpires: now.Add(claim.Lease),
		Takeover:     claim.Takeover,
		Started:      now,
		Updated:      now,
		Expires:      now.Add(claim.TTL),
	}
}

// abandon is the step of that name.
func (r *Record) abandon(now time.Time) {
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
		if r.Status != InProgress {
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
	var result Result
	if outcome.Status == Completed || outcome.Status == FailedFinal {
		result = outcome.Result.clone()
	}
	return m.write(ctx, &lease, func(r *Record, now time.Time) bool {
		if r.Status != InProgress && (r.Status != Unknown || outcome.Status == Unknown) {
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
		if r.Status != InProgress && r.Status != Unknown {
			return false
		}
		r.Status = FailedRetryable
		return true
	})
}

// write changes the record that the lease holds. change is called under the
// lock, and says whether the record's status allows what it was to do.
func (m *Memory) write(ctx context.Context, lease *Lease, change func(r *Record, now time.Time) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := lease.Validate(); err != nil {
		return err
	}
	s := m.shard(&lease.ID)
	s.mu.Lock()
	defer s.mu.Unlock()

	now := time.Now()
	r := s.records[lease.ID]
	if r == nil || r.Expired(now) || r.Lease() != *lease || !change(&r.Record, now) {
		return ErrLeaseLost
	}
	r.Updated = now
	s.changed(r)
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
	record, ok := m.shard(&id).load(id)
	if !ok {
		return Record{}, ErrNotFound
	}
	record.Result = record.Result.clone()
	return record, nil
}

func (s *memoryShard) load(id ID) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	r := s.records[id]
	if r == nil || r.Expired(time.Now()) {
		return Record{}, false
	}
	// The result is copied after the lock: it is replaced, but never changed.
	return r.Record, true
}

// Abandon implements Store.
func (m *Memory) Reap(ctx context.Context, limit int) ([]Record, error) {
	var abandoned []Record
	for i := range m.shards {
		if err := ctx.Err(); err != nil {
			return abandoned, err
		}
		abandoned = m.shards[i].abandon(abandoned, limit)
	}
	return abandoned, nil
}

func (s *memoryShard) abandon(abandoned []Record, limit int) []Record {
	s.mu.Lock()
	defer s.mu.Unlock()

	now := time.Now()
	for _, r := range s.pending {
		if len(abandoned) >= limit {
			break
		}
		if r.Lapsed(now) && !r.Takeover.Repeats() {
			r.Record.abandon(now)
			s.changed(r)
			abandoned = append(abandoned, r.Record)
		}
	}
	return abandoned
}

// Unknown implements Store. What it lists were Unknown when it began.
func (m *Memory) Unknown(ctx context.Context, scope string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var ids []ID
		for i := range m.shards {
			ids = m.shards[i].unknown(ids, scope)
		}
		slices.SortFunc(ids, func(a, b ID) int {
			return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Key, b.Key))
		})
		for _, id := range ids {
			record, err := m.Load(ctx, id)
			if err == nil && record.Status != Unknown || errors.Is(err, ErrNotFound) {
				continue // settled meanwhile
			}
			if !yield(record, err) || err != nil {
				return
			}
		}
	}
}

func (s *memoryShard) unknown(ids []ID, scope string) []ID {
	s.mu.Lock()
	defer s.mu.Unlock()

	for id, r := range s.pending {
		if r.Status == Unknown && (scope == "" || id.Scope == scope) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Sweep implements Store. It takes from each shard in turn, a few records at a
// time, so that no claim waits for more than those.
func (m *Memory) Sweep(ctx context.Context, limit int) (int, error) {
	// The next call begins elsewhere, so that small limits reach all shards.
	first := m.sweeps.Add(1)
	swept := 0
	for found := true; found; {
		found = false
		for i := range uint64(memoryShards) {
			if err := ctx.Err(); err != nil {
				return swept, err
			}
			if swept >= limit {
				return swept, nil
			}
			n := m.shards[(first+i)%memoryShards].sweep(min(memoryBatch, limit-swept))
			swept += n
			found = found || n > 0
		}
	}
	return swept, nil
}

func (s *memoryShard) sweep(limit int) int {
	s.mu.Lock()
	defer s.mu.Unlock()

	now := time.Now()
	n := 0
	for ; n < limit && len(s.queue) > 0 && s.queue[0].Expired(now); n++ {
		r := heap.Pop(&s.queue).(*memoryRecord) //nolint:errcheck // Pop below returns nothing else.
		delete(s.records, r.ID)
		delete(s.pending, r.ID)
	}
	if n > 0 && len(s.records) == 0 {
		// None of them shrinks by itself.
		s.records, s.queue, s.pending = nil, nil, nil
	}
	return n
}

// shard is where the record is, if there is one.
func (m *Memory) shard(id *ID) *memoryShard {
	m.once.Do(func() { m.seed = maphash.MakeSeed() })
	return &m.shards[maphash.Comparable(m.seed, *id)%memoryShards]
}

func (r *Result) clone() Result {
	c := *r
	c.Header = r.Header.Clone()
	c.Body = bytes.Clone(r.Body)
	return c
}

// changed puts the record where Sweep, Abandon and Unknown find it. It is called
// after each change.
func (s *memoryShard) changed(r *memoryRecord) {
	if r.Status == InProgress || r.Status == Unknown {
		if s.pending == nil {
			s.pending = make(map[ID]*memoryRecord)
		}
		s.pending[r.ID] = r
	} else {
		delete(s.pending, r.ID)
	}
	s.enqueue(r)
}

func (s *memoryShard) enqueue(r *memoryRecord) {
	due, never := r.Expires, r.Status == Unknown
	if r.Status == InProgress {
		never = !r.Takeover.Repeats()
		if due.Before(r.LeaseExpires) {
			due = r.LeaseExpires
		}
	}
	switch {
	case never:
		if r.place >= 0 {
			heap.Remove(&s.queue, r.place)
		}
	case r.place < 0:
		r.due = due
		heap.Push(&s.queue, r)
	case !r.due.Equal(due):
		r.due = due
		heap.Fix(&s.queue, r.place)
	}
}

// memoryQueue is a heap of the records that will expire, the next one first.
type memoryQueue []*memoryRecord

func (q memoryQueue) Len() int           { return len(q) }
func (q memoryQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q memoryQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push is for container/heap.
func (q *memoryQueue) Push(x any) {
	r := x.(*memoryRecord) //nolint:errcheck // enqueue pushes nothing else.
	r.place = len(*q)
	*q = append(*q, r)
}

// Pop is for container/heap.
func (q *memoryQueue) Pop() any {
	last := len(*q) - 1
	r := (*q)[last]
	r.place = -1
	(*q)[last] = nil
	*q = (*q)[:last]
	return r
}
