package docs_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

const (
	open     = "open"
	inDoubt  = "in doubt"
	paid     = "paid"
	declined = "declined"
)

// payment is a row of a table: what is stored before the call, and what the call changes.
type payment struct {
	Key, Body, URL string
	State          string
	Again          time.Time // not before
	Claimed        time.Time // until then a worker has the row
}

// shop has the payments.
type shop struct {
	client *http.Client
	claim  func(ctx context.Context, until time.Time) (*payment, error) // a row that is due, or nil
	store  func(*payment) error                                         // only while the row has the same claim
}

// newShop has the wrap of README.md.
func newShop(store func(*payment) error) *shop {
	client := &http.Client{
		Transport: &resilienthttp.Transport{}, // Base: your own RoundTripper, if you have one
	}
	return &shop{client: client, store: store}
}

// pay makes one call for a payment that is not paid or declined. Another process may repeat it.
func (s *shop) pay(ctx context.Context, p *payment) error {
	ctx, cancel := context.WithTimeout(resilienthttp.WithIdempotencyKey(ctx, p.Key), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL, strings.NewReader(p.Body))
	if err != nil {
		return err
	}
	before := p.State
	p.State = inDoubt // if this process dies, the call may have been sent
	if err := s.store(p); err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err == nil {
		defer resp.Body.Close()
	}
	doubt := resilienthttp.InDoubt(resp, err)
	switch {
	case err == nil && resp.StatusCode/100 == 2 && !doubt:
		p.State = paid
	case doubt || before == inDoubt: // only a 2xx, or a person, ends it
	case err == nil && slices.Contains([]int{400, 402, 422}, resp.StatusCode):
		p.State = declined // the same request gets the same response
	default:
		p.State = before // nothing was done: a 429, a wrong credential, not sent
	}
	p.Again = time.Now().Add(10 * time.Second) // an earlier repetition would be taken for a retry of this call
	if at := resilienthttp.NotBefore(resp, err); at.After(p.Again) {
		p.Again = at
	}
	p.Claimed = time.Time{}
	return s.store(p)
}

// work makes the calls that are due. Several workers may run it at a time.
func (s *shop) work(ctx context.Context) error {
	for ctx.Err() == nil {
		p, err := s.claim(ctx, time.Now().Add(time.Minute)) // twice the time of a call
		if p == nil || err != nil {
			return err
		}
		if err := s.pay(ctx, p); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// shopAt has the Base of a bank in memory.
func shopAt(bank *faulttest.Server) (*shop, *payment) {
	s := newShop(func(*payment) error { return nil })
	s.client.Transport.(*resilienthttp.Transport).Base = bank.Transport()
	return s, &payment{Key: "shop-7:invoice:001", Body: `{"amount":100}`, URL: bank.URL + "/charges", State: open}
}

// paymentsExample loses all responses of one call, and repeats the call later.
func paymentsExample(t *testing.T) string {
	var charges faulttest.Idempotent
	bank := faulttest.NewInMemory(t, faulttest.Script{{Until: time.Minute, Handler: lost(&charges)}, {Handler: usual(&charges)}})
	s, p := shopAt(bank)
	e := newEvents("state before", "state after", "charges at the bank")
	for _, at := range []time.Duration{0, 2 * time.Minute} {
		time.Sleep(at - time.Since(e.start))
		before, began := p.State, time.Now()
		require.NoError(t, s.pay(t.Context(), p))
		e.addAt(began, before, p.State, fmt.Sprint(charges.Executions()[p.Key]))
	}
	return e.String()
}

// TestPayments tries what docs/payments.md says of each state.
func TestPayments(t *testing.T) {
	var charges http.Handler = &faulttest.Idempotent{}
	status := func(code int) http.Handler { return usual(faulttest.Status(code)) }
	tooMany := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	elsewhere := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://elsewhere.test/charges", http.StatusTemporaryRedirect)
	}
	for _, row := range []struct {
		name, before, after string
		bank                http.Handler
		requests            int // 0: any number
	}{
		{"charged: paid", open, paid, charges, 1},
		{"the first response is lost: the retry's is the same, paid", open, paid, faulttest.Sequence(lost(charges), charges), 2},
		{"all responses are lost: in doubt", open, inDoubt, lost(charges), 0},
		{"in doubt, and charged: paid", inDoubt, paid, charges, 1},
		{"declined: declined", open, declined, status(http.StatusPaymentRequired), 1},
		{"an invalid request: declined, or it would be repeated for ever", open, declined, status(http.StatusUnprocessableEntity), 1},
		{"a wrong credential: open, until it is corrected", open, open, status(http.StatusUnauthorized), 1},
		{"in doubt, and declined: in doubt, because the provider may have forgotten the key", inDoubt, inDoubt, status(http.StatusPaymentRequired), 1},
		{"a decline after a lost response: in doubt", open, inDoubt, faulttest.Sequence(lost(charges), status(http.StatusPaymentRequired)), 2},
		{"too many requests for longer than the call: open", open, open, tooMany, 1},
		{"away for longer than the call, as a proxy says: in doubt, because it says so after the work too", open, inDoubt, faulttest.Unavailable(time.Hour, faulttest.Seconds), 1},
		{"in doubt, and then rejected: in doubt", inDoubt, inDoubt, tooMany, 1},
		{"a redirect's GET after a lost response: in doubt", open, inDoubt, faulttest.Script{
			{Route: "POST /charges", Handler: faulttest.Sequence(lost(charges), http.RedirectHandler("/charges/1", http.StatusSeeOther))},
			{Handler: usual(faulttest.OK(""))},
		}, 3},
		{"redirected to another server after a lost response: not followed, in doubt", open, inDoubt, faulttest.Sequence(lost(charges), http.HandlerFunc(elsewhere)), 2},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			bank := faulttest.NewInMemory(t, row.bank)
			s, p := shopAt(bank)
			p.State = row.before
			require.NoError(t, s.pay(t.Context(), p))
			require.Equal(t, row.after, p.State)
			require.True(t, row.requests == 0 || row.requests == bank.Total(), bank.Transcript())
		})
	}
}

// What cannot be stored is not sent, and what is being sent is stored as in doubt.
func TestPayments_storedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bank := faulttest.NewInMemory(t, faulttest.OK(""))
		s, p := shopAt(bank)
		full := errors.New("disk full")
		s.store = func(*payment) error { return full }
		require.ErrorIs(t, s.pay(t.Context(), p), full)
		require.Zero(t, bank.Total())
		var states []string
		s.store = func(p *payment) error {
			states = append(states, fmt.Sprint(p.State, ", requests: ", bank.Total()))
			return nil
		}
		p.State = open
		require.NoError(t, s.pay(t.Context(), p))
		require.Equal(t, []string{"in doubt, requests: 0", "paid, requests: 1"}, states)
	})
}

// table is the table of docs/payments.md in memory.
type table struct {
	mu   sync.Mutex
	rows map[string]payment
}

// claim is the first statement of docs/payments.md.
func (t *table) claim(_ context.Context, until time.Time) (*payment, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for key, p := range t.rows {
		due := (p.State == open || p.State == inDoubt) && !p.Again.After(now)
		if due && !p.Claimed.After(now) {
			p.Claimed = until
			t.rows[key] = p
			return &p, nil
		}
	}
	return nil, nil
}

// storeOf is the second statement, for a worker that claimed the row until then.
func (t *table) storeOf(p *payment, claimed time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows[p.Key].Claimed.Equal(claimed) {
		t.rows[p.Key] = *p
	}
	return nil
}

// Two workers never have the same row, and the row of a worker that died is claimed by another one when its claim is over.
func TestPayments_workers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var charges faulttest.Idempotent
		bank := faulttest.NewInMemory(t, usual(&charges))
		rows := &table{rows: map[string]payment{}}
		dies := time.Now().Add(time.Minute)
		for i := range 20 {
			key := fmt.Sprint("invoice:", i)
			rows.rows[key] = payment{Key: key, Body: "{}", URL: bank.URL + "/charges", State: open}
		}
		dead := rows.rows["invoice:7"]
		dead.State, dead.Claimed = inDoubt, dies
		rows.rows[dead.Key] = dead
		worker := func() *shop {
			var claimed time.Time
			s := newShop(nil)
			s.client.Transport.(*resilienthttp.Transport).Base = bank.Transport()
			s.claim = func(ctx context.Context, until time.Time) (*payment, error) {
				claimed = until
				return rows.claim(ctx, until)
			}
			s.store = func(p *payment) error { return rows.storeOf(p, claimed) }
			return s
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute/2)
		defer cancel()
		var workers sync.WaitGroup
		for range 2 {
			workers.Go(func() { assert.NoError(t, worker().work(ctx)) })
		}
		workers.Wait()
		require.Equal(t, 19, bank.Total(), "each row once, and not that of the dead worker")
		time.Sleep(time.Until(dies))
		require.NoError(t, worker().work(t.Context()))
		require.Equal(t, 20, bank.Total())
		for key, p := range rows.rows {
			require.Equal(t, paid, p.State, key)
			require.Equal(t, 1, charges.Executions()[key], key)
		}
	})
}

// The job does not repeat a call within ten seconds, and then the call has its retries again.
func TestPayments_tenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var charges faulttest.Idempotent
		bank := faulttest.NewInMemory(t, faulttest.Script{{Until: time.Minute, Handler: lost(&charges)}, {Handler: usual(&charges)}})
		s, p := shopAt(bank)
		require.NoError(t, s.pay(t.Context(), p))
		require.Equal(t, inDoubt, p.State)
		require.GreaterOrEqual(t, time.Until(p.Again), 10*time.Second)
		for _, row := range []struct {
			wait   time.Duration
			single bool
		}{{5 * time.Second, true}, {11 * time.Second, false}} {
			time.Sleep(row.wait)
			before := bank.Total()
			require.NoError(t, s.pay(t.Context(), p))
			require.Equal(t, row.single, bank.Total() == before+1, "after %v", row.wait)
		}
	})
}
