package resilienthttp

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/quota"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// scopeRecords is all that a Transport knows of one scope: what its priorities share, and a record
// for each of them. A call finds it by one look-up.
//
// A Breaker, Budget, RateLimit or Hedge that the program sets may have other users, so its entries
// are in a map of its own. Those that the Transport makes for itself are in no map.
type scopeRecords struct {
	config *config
	name   string

	bucket *budgetScope              // nil: retries have no limit
	hedges *hedgeScope               // nil: there is no Hedge
	quotas atomic.Pointer[quota.Set] // nil: see quotaSet

	byPriority    [3]atomic.Pointer[record] // from PriorityBatch on; nil: not used yet
	defaultRecord record                    // that of PriorityDefault: most scopes need one memory

	mu      sync.Mutex
	evicted bool          // from config.records; guarded by mu
	held    []*scope.Refs // entries of other maps, which must stay there; guarded by mu
}

const maxMaxScopes = 1_000_000

func (c *config) record(name string, p Priority) *record {
	s := c.records.Get(name)
	own := &s.byPriority[p-PriorityBatch]
	if r := own.Load(); r != nil {
		return r
	}
	r := new(record)
	r.init(s, p)
	own.CompareAndSwap(nil, r) // another goroutine may have been first
	return own.Load()
}

func (s *scopeRecords) init(c *config, name string) {
	s.config, s.name = c, name
	s.bucket, s.hedges = c.budget.scope(name, c.own.budget), c.hedge.scope(name)
	if s.bucket != nil && !c.own.budget {
		s.hold(&s.bucket.Refs)
	}
	if s.hedges != nil {
		s.hold(&s.hedges.Refs)
	}
	if !c.own.rateLimit {
		s.quotaSet()
	}
	s.defaultRecord.init(s, PriorityDefault)
	s.byPriority[PriorityDefault-PriorityBatch].Store(&s.defaultRecord)
}

func (r *record) init(s *scopeRecords, p Priority) {
	c, key := s.config, scope.Key{Name: s.name, Class: int8(p)}
	r.scopeRecords, r.created = s, time.Since(c.origin)
	if engine := c.breaker.circuits(c.origin); c.own.breaker {
		r.circuit = engine.New(key)
	} else {
		r.circuit = engine.Circuit(key)
		s.hold(&r.circuit.Refs)
	}
}

// hold keeps an entry in its map until the scope is evicted.
func (s *scopeRecords) hold(entry *scope.Refs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.evicted {
		entry.Acquire()
		s.held = append(s.held, entry)
	}
}

func (s *scopeRecords) evict() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evicted = true
	for _, entry := range s.held {
		entry.Release()
	}
	s.held = nil
}

// keep reports whether other scopes must be evicted first.
func (s *scopeRecords) keep() bool {
	if s.quotas.Load().Active() {
		return true
	}
	for r := range s.all() {
		if r.circuit.NotClosed() || r.inFlight.Count() > 0 {
			return true
		}
	}
	return false
}

func (s *scopeRecords) all() iter.Seq2[*record, Priority] {
	return func(yield func(*record, Priority) bool) {
		for i := range s.byPriority {
			if r := s.byPriority[i].Load(); r != nil && !yield(r, PriorityBatch+Priority(i)) {
				return
			}
		}
	}
}

// quotaSet returns the quotas of the scope. If no other Transport uses the RateLimit, they are created when a response
// shows the first one.
func (s *scopeRecords) quotaSet() *quota.Set {
	if set := s.quotas.Load(); set != nil {
		return set
	}
	if set := s.config.rateLimit.engine().Set(s.name); s.quotas.CompareAndSwap(nil, set) {
		s.hold(&set.Refs)
	}
	return s.quotas.Load()
}
