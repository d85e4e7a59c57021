package idempotency_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// A thousand clients request fifty operations. The store fails, hangs and loses answers. The
// handlers fail, panic, sleep past their leases and are taken over. Each operation takes effect once, and all its callers get the same result.
// (A goroutine, timer or transaction that is left behind fails the test.)

const (
	stressClients = 1000
	stressKeys    = 50
	stressLease   = 3 * time.Second
)

// trouble is a random fault of the store.
func trouble(calm *atomic.Bool) func(verb string) fault {
	return func(string) fault {
		if calm.Load() {
			return fault{}
		}
		switch n := rand.IntN(100); {
		case n < 9:
			return fault{before: errDown}
		case n < 18:
			return fault{after: errLost}
		case n < 24:
			return fault{delay: rand.N(2 * stressLease)}
		case n < 30:
			return fault{linger: rand.N(stressLease), after: errLost}
		default:
			return fault{}
		}
	}
}

// stress is one such run.
type stress struct {
	rigs []*rig // as many processes
	calm atomic.Bool

	requests atomic.Int64
	mu       sync.Mutex
	heard    map[string]map[string]int // bodies of successes, by key
}

// ask sends a request to one of the processes, and records the response.
func (s *stress) ask(t *testing.T, key string) int {
	t.Helper()
	s.requests.Add(1)
	w, panicked := servePanicking(s.rigs[rand.IntN(len(s.rigs))], keyed(t, key))
	if panicked != nil {
		return 0
	}
	if w.Code < 300 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.heard[key] == nil {
			s.heard[key] = map[string]int{}
		}
		s.heard[key][w.Body.String()]++
	}
	return w.Code
}

// run lets all clients retry until they have a final response, for some time.
func (s *stress) run(t *testing.T) {
	t.Helper()
	s.heard = map[string]map[string]int{}
	var wg sync.WaitGroup
	for i := range stressClients {
		wg.Go(func() {
			for range 8 {
				time.Sleep(rand.N(3 * stressLease))
				if s.ask(t, fmt.Sprint("key ", i%stressKeys)) == http.StatusCreated {
					return
				}
			}
		})
	}
	wg.Wait()
	s.calm.Store(true)
	time.Sleep(10 * stressLease) // the leases of dead executions are over
}

// verify checks what must hold in any mode.
func (s *stress) verify(t *testing.T) {
	t.Helper()
	var done int64
	for _, r := range s.rigs {
		done += int64(len(r.dispositions()))
	}
	assert.Equal(t, s.requests.Load(), done, "Done is called once for each request")
	for key, bodies := range s.heard {
		assert.Len(t, bodies, 1, "%s: clients heard different things: %v", key, bodies)
	}
}

// mischief is a random fault of a handler before and after its effect. It returns the status
// of the response.
func mischief(calm *atomic.Bool, effect func() bool) int {
	if calm.Load() {
		effect()
		return http.StatusCreated
	}
	pause := func() {
		if rand.IntN(2) == 0 {
			time.Sleep(rand.N(3 * stressLease)) // deaf to the context
		}
	}
	pause()
	if rand.IntN(2) == 0 {
		return http.StatusServiceUnavailable
	}
	if !effect() {
		return http.StatusServiceUnavailable
	}
	pause()
	if rand.IntN(5) == 0 {
		panic("test: mischief")
	}
	return http.StatusCreated
}

func TestStress_transactional(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stress{}
		ledger := newLedger()
		for range 4 {
			store := faultyTx(ledger)
			store.chaos = trouble(&s.calm)
			s.rigs = append(s.rigs, newRig(store, func(w http.ResponseWriter, r *http.Request) {
				e, _ := idempotency.FromContext(r.Context())
				code := mischief(&s.calm, func() bool {
					tx, err := idempotency.Tx[*ledgerTx](r.Context())
					return err == nil && tx.Add(e.Key, 1) == nil
				})
				w.WriteHeader(code)
				fmt.Fprint(w, e.Owner)
			}, transactional, lease(stressLease)))
		}
		s.run(t)
		for i := range stressKeys {
			key := fmt.Sprint("key ", i)
			assert.LessOrEqual(t, ledger.sum(key), 1, key)
			if len(s.heard[key]) > 0 {
				assert.Equal(t, 1, ledger.sum(key), "%s: a success without an effect", key)
			}
			assert.Equal(t, http.StatusCreated, s.ask(t, key), "transactional work can always be finished")
			assert.Equal(t, 1, ledger.sum(key), key)
		}
		s.verify(t)
		assert.Zero(t, ledger.transactions())
	})
}

func TestStress_nonTransactional(t *testing.T) {
	for _, row := range []struct {
		name   string
		policy idempotency.Takeover
		once   bool
	}{
		{"at most once", idempotency.MarkUnknown, true},
		{"by policy more often", idempotency.Reexecute, false},
		{"resumed", idempotency.Resume, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			s := &stress{}
			memory := new(idempotency.Memory)
			var effects [stressKeys]atomic.Int64
			for range 4 {
				store := faulty(memory)
				store.chaos = trouble(&s.calm)
				s.rigs = append(s.rigs, newRig(store, func(w http.ResponseWriter, r *http.Request) {
					e, _ := idempotency.FromContext(r.Context())
					var i int
					fmt.Sscanf(e.Key, "key %d", &i) //nolint:errcheck // a test's own key
					code := mischief(&s.calm, func() bool {
						effects[i].Add(1)
						return true
					})
					w.WriteHeader(code)
					fmt.Fprint(w, e.Owner)
				}, takeover(row.policy), lease(stressLease)))
			}
			s.run(t)
			for i := range stressKeys {
				key := fmt.Sprint("key ", i)
				code := s.ask(t, key)
				switch {
				case !row.once:
					assert.Equal(t, http.StatusCreated, code, key)
				case code == http.StatusCreated:
					assert.EqualValues(t, 1, effects[i].Load(), key)
				default:
					assert.Equal(t, http.StatusConflict, code, key)
					assert.LessOrEqual(t, effects[i].Load(), int64(1), key)
					assert.Empty(t, s.heard[key], "%s: reported a success without an effect", key)
				}
			}
			s.verify(t)
		})
	}
}
