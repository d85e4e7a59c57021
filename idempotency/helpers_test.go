package idempotency_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// This file has the helpers of the tests of Handler, Executor and Sweeper: a store that fails
// on purpose, one with transactions, hooks that record events, and requests.

var (
	errDown   = errors.New("test: the database is down")
	errLost   = errors.New("test: the answer was lost")
	errTxDone = errors.New("test: the transaction has ended")
)

// The verbs of a store, as a faultyStore counts them.
const (
	onReserve  = "reserve"
	onRenew    = "renew"
	onComplete = "complete"
	onRelease  = "release"
	onLoad     = "load"
	onAbandon  = "abandon"
	onSweep    = "sweep"
	onBegin    = "begin"
	onCommit   = "commit"
	onRefuse   = "refuse"
	onRollback = "rollback"
)

// A fault is a failure of one call of a verb.
type fault struct {
	before error           // returned, and the verb has no effect
	delay  time.Duration   // before the effect, unless the context ends first
	hold   <-chan struct{} // waits until it is closed, unless the context ends first
	after  error           // returned, though the verb had its effect
	linger time.Duration   // after the effect; deaf to the context
	ghost  time.Duration   // the error is returned at once, and what becomes of the transaction comes that much later
}

// A rule is a fault of the calls number from to number to of a verb. A to of 0 means from.
type rule struct {
	verb     string
	from, to int
	fault
}

const always = 1 << 30

// faultyStore makes a store fail by rules. The first rule that matches counts.
type faultyStore struct {
	idempotency.Store

	chaos func(verb string) fault // where no rule fits; nil: none

	mu    sync.Mutex
	rules []rule
	calls map[string][]time.Time
}

func faulty(store idempotency.Store, rules ...rule) *faultyStore {
	return &faultyStore{Store: store, rules: rules, calls: map[string][]time.Time{}}
}

func (s *faultyStore) enter(verb string) fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[verb] = append(s.calls[verb], time.Now())
	n := len(s.calls[verb])
	for _, r := range s.rules {
		if r.verb == verb && n >= r.from && n <= max(r.from, r.to) {
			return r.fault
		}
	}
	if s.chaos != nil {
		return s.chaos(verb)
	}
	return fault{}
}

// count is the number of calls of a verb.
func (s *faultyStore) count(verb string) int { return len(s.times(verb)) }

// times are the times of the calls of a verb.
func (s *faultyStore) times(verb string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls[verb])
}

// counts are the numbers of calls of each verb.
func (s *faultyStore) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	for verb, times := range s.calls {
		if verb != onLoad { // the tests' own
			counts[verb] = len(times)
		}
	}
	return counts
}

// obey adds rules.
func (s *faultyStore) obey(rules ...rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, rules...)
}

func (f *fault) do(ctx context.Context, effect func() error) error {
	if f.before != nil {
		return f.before
	}
	if f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := effect()
	time.Sleep(f.linger)
	return cmp.Or(f.after, err)
}

// call is do for a verb with a result, which is lost with an error.
func call[T any](ctx context.Context, f fault, effect func() (T, error)) (result T, err error) {
	err = f.do(ctx, func() (err error) {
		result, err = effect()
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return result, nil
}

func (s *faultyStore) Reserve(ctx context.Context, claim idempotency.Claim) (idempotency.Reservation, error) {
	return call(ctx, s.enter(onReserve), func() (idempotency.Reservation, error) { return s.Store.Reserve(ctx, claim) })
}

func (s *faultyStore) Renew(ctx context.Context, lease idempotency.Lease, d time.Duration) error {
	f := s.enter(onRenew)
	return f.do(ctx, func() error { return s.Store.Renew(ctx, lease, d) })
}

func (s *faultyStore) Complete(ctx context.Context, lease idempotency.Lease, o idempotency.Outcome) error {
	f := s.enter(onComplete)
	return f.do(ctx, func() error { return s.Store.Complete(ctx, lease, o) })
}

func (s *faultyStore) Release(ctx context.Context, lease idempotency.Lease) error {
	f := s.enter(onRelease)
	return f.do(ctx, func() error { return s.Store.Release(ctx, lease) })
}

func (s *faultyStore) Load(ctx context.Context, id idempotency.ID) (idempotency.Record, error) {
	return call(ctx, s.enter(onLoad), func() (idempotency.Record, error) { return s.Store.Load(ctx, id) })
}

func (s *faultyStore) Reap(ctx context.Context, limit int) ([]idempotency.Record, error) {
	return call(ctx, s.enter(onAbandon), func() ([]idempotency.Record, error) { return s.Store.Reap(ctx, limit) })
}

func (s *faultyStore) Sweep(ctx context.Context, limit int) (int, error) {
	return call(ctx, s.enter(onSweep), func() (int, error) { return s.Store.Sweep(ctx, limit) })
}

// faultyTransactor is a faultyStore with transactions, which can fail too.
type faultyTransactor struct {
	*faultyStore

	ledger *ledgerStore
}

func faultyTx(store *ledgerStore, rules ...rule) faultyTransactor {
	return faultyTransactor{faulty(store, rules...), store}
}

func (s faultyTransactor) Begin(
	ctx context.Context, claim idempotency.Claim, limit time.Duration,
) (r idempotency.Reservation, tx idempotency.Transaction, err error) {
	f := s.enter(onBegin)
	err = f.do(ctx, func() (err error) {
		r, tx, err = s.ledger.Begin(ctx, claim, limit)
		return err
	})
	switch {
	case err != nil && tx != nil: // it dies with its connection
		_ = tx.Rollback(ctx)
		return idempotency.Reservation{}, nil, err
	case tx != nil:
		return r, &faultyTransaction{tx, s.faultyStore}, nil
	default:
		return r, nil, err
	}
}

func (s faultyTransactor) InCallerTx() bool { return s.ledger.InCallerTx() }

type faultyTransaction struct {
	idempotency.Transaction
	store *faultyStore
}

func (t *faultyTransaction) Commit(ctx context.Context, o idempotency.Outcome) error {
	return t.end(ctx, onCommit, func(ctx context.Context) error { return t.Transaction.Commit(ctx, o) })
}

func (t *faultyTransaction) RollbackAndRecord(ctx context.Context, o idempotency.Outcome) error {
	return t.end(ctx, onRefuse, func(ctx context.Context) error { return t.Transaction.RollbackAndRecord(ctx, o) })
}

func (t *faultyTransaction) Rollback(ctx context.Context) error {
	return t.end(ctx, onRollback, t.Transaction.Rollback)
}

// end ends the transaction, whatever it returns.
func (t *faultyTransaction) end(ctx context.Context, verb string, effect func(context.Context) error) error {
	f := t.store.enter(verb)
	if f.ghost > 0 {
		time.AfterFunc(f.ghost, func() {
			if f.before == nil {
				_ = effect(context.WithoutCancel(ctx))
			}
			_ = t.Transaction.Rollback(ctx)
		})
		return cmp.Or(f.before, f.after)
	}
	err := f.do(ctx, func() error { return effect(ctx) })
	if err != nil {
		_ = t.Transaction.Rollback(ctx)
	}
	return err
}

// ledgerStore is a Memory that shares its database with the work: a ledger. While
// a transaction is open, its operation is locked; its record is written when it is
// committed.
type ledgerStore struct {
	idempotency.Memory

	within bool

	mu     sync.Mutex // a commit is one step
	ledger map[string]int
	open   map[idempotency.ID]*ledgerTx
}

func newLedger() *ledgerStore {
	return &ledgerStore{ledger: map[string]int{}, open: map[idempotency.ID]*ledgerTx{}}
}

// sum is what was committed for an account.
func (s *ledgerStore) sum(account string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger[account]
}

// transactions is the number of open transactions.
func (s *ledgerStore) transactions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

func (s *ledgerStore) InCallerTx() bool { return s.within }

func (s *ledgerStore) Reserve(ctx context.Context, claim idempotency.Claim) (idempotency.Reservation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[claim.ID] != nil {
		return idempotency.Reservation{Decision: idempotency.DecisionInProgress}, nil
	}
	return s.Memory.Reserve(ctx, claim)
}

func (s *ledgerStore) Load(ctx context.Context, id idempotency.ID) (idempotency.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Memory.Load(ctx, id)
}

func (s *ledgerStore) Begin(
	ctx context.Context, claim idempotency.Claim, limit time.Duration,
) (idempotency.Reservation, idempotency.Transaction, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(ctx.Err(), claim.Validate()); err != nil {
		return idempotency.Reservation{}, nil, err
	}
	if s.open[claim.ID] != nil {
		return idempotency.Reservation{Decision: idempotency.DecisionInProgress}, nil, nil
	}
	if _, err := s.Sweep(ctx, 1e6); err != nil { // what has expired is absent
		return idempotency.Reservation{}, nil, err
	}
	var judged *idempotency.Record
	if record, err := s.Memory.Load(ctx, claim.ID); err == nil {
		judged = &record
	}
	step, reservation := idempotency.Decide(judged, &claim, time.Now())
	switch step { //nolint:exhaustive // the others are done at the end
	case idempotency.StepLeave:
		reservation.Record = *judged
		return reservation, nil, nil
	case idempotency.StepMarkUnknown:
		reservation, err := s.Memory.Reserve(ctx, claim)
		return reservation, nil, err
	}
	reservation.Record = idempotency.Record{ID: claim.ID, Owner: claim.Owner, Generation: 1}
	if judged != nil {
		reservation.Record.Generation = judged.Generation + 1
	}
	tx := &ledgerTx{store: s, claim: claim, lease: reservation.Record.Lease(), writes: map[string]int{}, limit: limit, stop: func() {}}
	s.open[claim.ID] = tx
	if limit > 0 {
		timer := time.AfterFunc(limit, tx.end)
		tx.stop = func() { timer.Stop() }
	}
	return reservation, tx, nil
}

// ledgerTx is a transaction of a ledgerStore, and its Value.
type ledgerTx struct {
	store  *ledgerStore
	claim  idempotency.Claim
	lease  idempotency.Lease
	limit  time.Duration
	writes map[string]int
	over   bool
	stop   func()
}

// Add writes to the ledger.
func (t *ledgerTx) Add(account string, n int) error {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if t.over {
		return errTxDone
	}
	t.writes[account] += n
	return nil
}

func (t *ledgerTx) Value() any { return t }

func (t *ledgerTx) Commit(ctx context.Context, o idempotency.Outcome) error {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if err := t.write(ctx, o); err != nil {
		return err
	}
	for account, n := range t.writes {
		t.store.ledger[account] += n
	}
	return nil
}

func (t *ledgerTx) RollbackAndRecord(ctx context.Context, o idempotency.Outcome) error {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	return t.write(ctx, o)
}

// write ends the transaction with a record.
func (t *ledgerTx) write(ctx context.Context, o idempotency.Outcome) error {
	if t.over {
		return errTxDone
	}
	t.endLocked()
	reservation, err := t.store.Memory.Reserve(ctx, t.claim)
	switch {
	case err != nil:
		return err
	case reservation.Decision != idempotency.DecisionAcquired || reservation.Record.Lease() != t.lease:
		return idempotency.ErrLeaseLost
	default:
		return t.store.Complete(ctx, t.lease, o)
	}
}

func (t *ledgerTx) Rollback(context.Context) error {
	t.end()
	return nil
}

func (t *ledgerTx) end() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.endLocked()
}

func (t *ledgerTx) endLocked() {
	if !t.over {
		t.over = true
		t.stop()
		delete(t.store.open, t.lease.ID)
	}
}

// hooks record events.
type hooks struct {
	mu                     sync.Mutex
	done, unknown, renewal []idempotency.Event
}

func (h *hooks) trace() *idempotency.Trace {
	keep := func(to *[]idempotency.Event) func(*idempotency.Event) {
		return func(e *idempotency.Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			*to = append(*to, *e)
		}
	}
	return &idempotency.Trace{Done: keep(&h.done), Unknown: keep(&h.unknown), RenewalFailed: keep(&h.renewal)}
}

// dispositions are those of all requests so far, in order.
func (h *hooks) dispositions() []idempotency.Disposition {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := []idempotency.Disposition{}
	for i := range h.done {
		all = append(all, h.done[i].Disposition)
	}
	return all
}

// last is the last Done event.
func (h *hooks) last(t *testing.T) idempotency.Event {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.NotEmpty(t, h.done)
	return h.done[len(h.done)-1]
}

func (h *hooks) unknowns() []idempotency.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.unknown)
}

func (h *hooks) renewals() []idempotency.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.renewal)
}

// rig is a Handler under test.
type rig struct {
	*idempotency.Handler
	hooks

	executions atomic.Int64 // calls of the inner handler
}

// tenant is a scope function.
func tenant(r *http.Request) (string, error) {
	if name := r.Header.Get("Tenant"); name != "unknown" {
		return name, nil
	}
	return "", errors.New("test: no tenant")
}

func newRig(store idempotency.Store, next http.HandlerFunc, change ...func(*idempotency.Handler)) *rig {
	r := &rig{}
	r.Handler = idempotency.NewHandler(store, tenant, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.executions.Add(1)
		next(w, req)
	}))
	r.Trace = r.trace()
	for _, f := range change {
		if f != nil {
			f(r.Handler)
		}
	}
	return r
}

// within ends a context after a time; 0: it does not end.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// changes of a rig, by the mode of its work.
func modes() map[string]func(*idempotency.Handler) {
	return map[string]func(*idempotency.Handler){"non-transactional": nil, "transactional": transactional}
}

// transactional and the functions below are changes of a rig.
func transactional(h *idempotency.Handler) { h.Transactional = true }

func takeover(p idempotency.Takeover) func(*idempotency.Handler) {
	return func(h *idempotency.Handler) { h.Takeover = p }
}

func lease(d time.Duration) func(*idempotency.Handler) {
	return func(h *idempotency.Handler) { h.Lease = d }
}

// answer is a handler with a constant response.
func answer(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Handler", "this")
		w.WriteHeader(code)
		w.Write([]byte(body))
	}
}

const (
	theKey  = "comp1:invoice:001"
	thePath = "/charges"
	theBody = `{"amount": 100}`
)

// theID is the operation of request.
var theID = idempotency.ID{Operation: "POST /charges", Key: theKey}

// request is a POST with a key.
func request(tb testing.TB) *http.Request {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, thePath, strings.NewReader(theBody))
	r.Header.Set("Idempotency-Key", theKey)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// keyed is request with another key.
func keyed(tb testing.TB, key string) *http.Request {
	tb.Helper()
	r := request(tb)
	r.Header.Set("Idempotency-Key", key)
	return r
}

// withBody gives a request another body.
func withBody(r *http.Request, body string) *http.Request {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	return r
}

// serve sends a request and returns the response.
func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// post sends the usual request.
func (r *rig) post(tb testing.TB) *httptest.ResponseRecorder {
	tb.Helper()
	return serve(r, request(tb))
}

// goPost sends the usual request from another goroutine.
func (r *rig) goPost(tb testing.TB) <-chan *httptest.ResponseRecorder {
	tb.Helper()
	response, req := make(chan *httptest.ResponseRecorder, 1), request(tb)
	go func() { response <- serve(r, req) }()
	return response
}

// servePanicking sends a request and returns what the handler panicked with; nil
// also means Goexit.
func servePanicking(h http.Handler, r *http.Request) (*httptest.ResponseRecorder, any) {
	w, panicked := httptest.NewRecorder(), make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		h.ServeHTTP(w, r)
	}()
	return w, <-panicked
}

// problemOf returns the problem of a response.
type problemOf struct {
	Type, Title, Detail string
	Status              int
}

// requireProblem checks that a response is this problem.
func requireProblem(t *testing.T, w *httptest.ResponseRecorder, status int, kind string) problemOf {
	t.Helper()
	require.Equal(t, status, w.Code, "%s", w.Body)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), "%s", w.Body)
	var p problemOf
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, problemBase+kind, p.Type)
	require.Equal(t, status, p.Status)
	require.Empty(t, w.Header().Get("Idempotency-Replayed"))
	require.Empty(t, w.Header().Get("Handler"), "a field of the handler's in a refusal")
	return p
}

// requireReplay checks that a response is a replay of the first one.
func requireReplay(t *testing.T, first, again *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, "true", again.Header().Get("Idempotency-Replayed"), "%d %s", again.Code, again.Body)
	require.Equal(t, first.Code, again.Code)
	require.Equal(t, first.Body.String(), again.Body.String())
	was, header := first.Result().Header, again.Result().Header
	header.Del("Idempotency-Replayed")
	for name, values := range header {
		if len(values) == 0 {
			delete(header, name) // net/http sends none, and adds none
		}
	}
	if was.Get("Content-Type") == "" {
		header.Del("Content-Type") // net/http's guess, which a recorder makes only sometimes
	}
	assert.Equal(t, was, header)
}

// problemBase is the public start of a problem's type. It never changes.
const problemBase = "https://github.com/resilienthttp/resilienthttp/blob/main/docs/server-idempotency.md#"

// mustLoad reads a record.
func mustLoad(t *testing.T, store idempotency.Store, id idempotency.ID) idempotency.Record {
	t.Helper()
	record, err := store.Load(t.Context(), id)
	require.NoError(t, err)
	return record
}

// crash makes a claim and does not end it, like a process that dies. It returns the lease of
// the dead execution.
func crash(t *testing.T, h *idempotency.Handler, store idempotency.Store, r *http.Request) idempotency.Lease {
	t.Helper()
	reservation, err := store.Reserve(t.Context(), idempotency.Claim{
		ID:          idempotency.ID{Scope: r.Header.Get("Tenant"), Operation: "POST /charges", Key: theKey},
		Fingerprint: idempotency.RequestFingerprint(r, []byte(theBody)), Owner: rand.Text(),
		Lease: cmp.Or(h.Lease, 30*time.Second), TTL: 24 * time.Hour, Takeover: h.Takeover,
	})
	require.NoError(t, err)
	require.Equal(t, idempotency.DecisionAcquired, reservation.Decision)
	return reservation.Record.Lease()
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
