package durable_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// id is the intent of tests that need one.
var id = idempotency.ID{Scope: "comp1", Operation: "POST /charges", Key: "invoice:001"}

// epoch is a time of tests that need one.
var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// gatewayFunc is a Gateway.
type gatewayFunc func(ctx context.Context, s *durable.Send) durable.Outcome

func (f gatewayFunc) Send(ctx context.Context, s *durable.Send) durable.Outcome { return f(ctx, s) }

// finderFunc is a Gateway with status queries.
type finderFunc struct {
	gatewayFunc

	find gatewayFunc
}

func (f finderFunc) Find(ctx context.Context, s *durable.Send) durable.Outcome { return f.find(ctx, s) }

// returns is a Gateway with one outcome.
func returns(outcome durable.Outcome) gatewayFunc {
	return func(context.Context, *durable.Send) durable.Outcome { return outcome }
}

// succeeds is a Gateway that always succeeds.
var succeeds = returns(durable.Outcome{Class: durable.ClassSucceeded})

// succeedsAfter is a Gateway that does something, and succeeds.
func succeedsAfter(work func()) gatewayFunc {
	return func(context.Context, *durable.Send) durable.Outcome {
		work()
		return durable.Outcome{Class: durable.ClassSucceeded}
	}
}

// through returns an Engine with one Gateway and an empty store.
func through(gateway durable.Gateway) *durable.Engine {
	return &durable.Engine{Store: new(durable.Memory), Gateways: map[string]durable.Gateway{"psp": gateway}}
}

// shakyStore is through with a store that may fail.
func shakyStore(gateway durable.Gateway) (*durable.Engine, *shaky) {
	e := through(gateway)
	store := &shaky{Store: e.Store}
	e.Store = store
	return e, store
}

func pay(scope, key string) durable.Intent {
	in := durable.Intent{ID: id, Gateway: "psp", Payload: []byte("pay")}
	in.Scope, in.Key = scope, key
	return in
}

// several are n intents of a scope. Their keys are numbers from 0 on.
func several(scope string, n int) (intents []durable.Intent) {
	for i := range n {
		intents = append(intents, pay(scope, strconv.Itoa(i)))
	}
	return intents
}

// ofTenants are n intents of tenants in turn. Their keys are numbers from 0 on.
func ofTenants(tenants, n int) (intents []durable.Intent) {
	for i := range n {
		intents = append(intents, pay("tenant "+strconv.Itoa(i%tenants), strconv.Itoa(i)))
	}
	return intents
}

func enqueue(t *testing.T, e *durable.Engine, intents ...durable.Intent) {
	t.Helper()
	for _, in := range intents {
		enqueueOne(t, e, in)
	}
}

// enqueuePay enqueues an intent.
func enqueuePay(t *testing.T, e *durable.Engine) durable.Intent {
	t.Helper()
	in := pay("comp1", "1")
	enqueueOne(t, e, in)
	return in
}

func enqueueOne(t *testing.T, e *durable.Engine, in durable.Intent) durable.Receipt {
	t.Helper()
	receipt, err := e.Enqueue(t.Context(), in)
	require.NoError(t, err)
	return receipt
}

// work sends due intents, and returns their number.
func work(t *testing.T, e *durable.Engine, limit int) int {
	t.Helper()
	n, err := e.Work(t.Context(), limit)
	require.NoError(t, err)
	return n
}

func workOne(t *testing.T, e *durable.Engine, id idempotency.ID) time.Time {
	t.Helper()
	next, err := e.WorkOne(t.Context(), id)
	require.NoError(t, err)
	return next
}

// addJob adds a job that redrives dead letters.
func addJob(t *testing.T, e *durable.Engine, filter durable.Filter, how durable.Redrive) durable.JobID {
	t.Helper()
	id, err := e.Redrive(t.Context(), filter, how)
	require.NoError(t, err)
	return id
}

func statsOf(t *testing.T, e *durable.Engine) durable.Stats {
	t.Helper()
	stats, err := e.Stats(t.Context())
	require.NoError(t, err)
	return stats
}

func holdsOf(t *testing.T, e *durable.Engine) []durable.Hold {
	t.Helper()
	holds, err := e.Holds(t.Context())
	require.NoError(t, err)
	return holds
}

// running runs the Engine during a test.
func running(t *testing.T, e *durable.Engine) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

// runFor runs an Engine for a time.
func runFor(t *testing.T, e *durable.Engine, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	require.NoError(t, e.Run(ctx))
}

func find(t *testing.T, e *durable.Engine, id idempotency.ID) durable.Record {
	t.Helper()
	record, err := e.Find(t.Context(), id)
	require.NoError(t, err)
	return record
}

func journal(t *testing.T, e *durable.Engine, id idempotency.ID) []durable.Attempt {
	t.Helper()
	attempts, err := e.Attempts(t.Context(), id)
	require.NoError(t, err)
	return attempts
}

func assertState(t *testing.T, e *durable.Engine, id idempotency.ID, want durable.State) {
	t.Helper()
	assert.Equal(t, want.String(), find(t, e, id).State.String())
}

var (
	errDown   = errors.New("the store is down")
	errSilent = errors.New("the store's answer was lost")
	errHangs  = errors.New("the store does not answer")
)

// shaky is a Store with verbs that fail as its user says.
type shaky struct {
	durable.Store

	claimed func(durable.Claim, *durable.Claimed) // sees and changes an answer to a claim; nil: nothing

	mu    sync.Mutex
	fail  func(verb string) error // errSilent: the verb is executed, and its answer is lost; errHangs: it waits for its context
	calls map[string]int
}

func (s *shaky) set(fail func(verb string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

func (s *shaky) called(verb string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[verb]
}

func call[T any](ctx context.Context, s *shaky, verb string, work func() (T, error)) (T, error) {
	s.mu.Lock()
	if s.calls == nil {
		s.calls = make(map[string]int)
	}
	s.calls[verb]++
	fail := s.fail
	s.mu.Unlock()
	var zero T
	var err error
	if fail != nil {
		err = fail(verb)
	}
	switch {
	case errors.Is(err, errHangs):
		<-ctx.Done()
		return zero, ctx.Err()
	case err != nil && !errors.Is(err, errSilent):
		return zero, err
	}
	result, workErr := work()
	if err != nil {
		return zero, err
	}
	return result, workErr
}

func (s *shaky) Apply(ctx context.Context, events []durable.Event) ([]durable.Result, error) {
	return call(ctx, s, "apply", func() ([]durable.Result, error) { return s.Store.Apply(ctx, events) })
}

func (s *shaky) Claim(ctx context.Context, claim durable.Claim) (durable.Claimed, error) {
	return call(ctx, s, "claim", func() (durable.Claimed, error) {
		claimed, err := s.Store.Claim(ctx, claim)
		if s.claimed != nil {
			s.claimed(claim, &claimed)
		}
		return claimed, err
	})
}

func (s *shaky) Heartbeat(ctx context.Context, worker string, lease time.Duration) (time.Time, error) {
	return call(ctx, s, "beat", func() (time.Time, error) { return s.Store.Heartbeat(ctx, worker, lease) })
}

func (s *shaky) SetHold(ctx context.Context, hold durable.Hold) error {
	_, err := call(ctx, s, "hold", func() (struct{}, error) { return struct{}{}, s.Store.SetHold(ctx, hold) })
	return err
}

func (s *shaky) Attempts(ctx context.Context, id idempotency.ID) ([]durable.Attempt, error) {
	return call(ctx, s, "attempts", func() ([]durable.Attempt, error) { return s.Store.Attempts(ctx, id) })
}

func (s *shaky) Reap(ctx context.Context, limit int) ([]durable.Change, error) {
	return call(ctx, s, "reap", func() ([]durable.Change, error) { return s.Store.Reap(ctx, limit) })
}

func (s *shaky) Rebase(ctx context.Context, limit int) (int, error) {
	return call(ctx, s, "rebase", func() (int, error) { return s.Store.Rebase(ctx, limit) })
}

func (s *shaky) WorkJob(ctx context.Context, limit int) (job durable.Job, changes []durable.Change, err error) {
	job, err = call(ctx, s, "job", func() (job durable.Job, err error) {
		job, changes, err = s.Store.WorkJob(ctx, limit)
		return job, err
	})
	return job, changes, err
}

func (s *shaky) Sweep(ctx context.Context, ttl time.Duration, limit int) (int, error) {
	return call(ctx, s, "sweep", func() (int, error) { return s.Store.Sweep(ctx, ttl, limit) })
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
