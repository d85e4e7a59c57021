package docs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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
	toLookUp = "look up"
	paid     = "paid"
	declined = "declined"
	unclear  = "ask a person"
)

// payment is a row of a table: what is stored before the call, and what the call changes.
type payment struct {
	Key, Body, URL string
	State          string
	First          time.Time // the first call; zero: there was none
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

const (
	// The provider forgets a key after 24 h. The last call takes time, and clocks differ.
	keyLife = 23 * time.Hour
	// From a call until the provider surely shows its payment.
	settled = 5 * time.Minute
)

// pay makes one call for a payment of which the result is not known. Another process may repeat it.
func (s *shop) pay(ctx context.Context, p *payment) error {
	if p.State == inDoubt && time.Since(p.First) > keyLife {
		// The provider may have forgotten the key, so a repetition may be a second payment.
		p.State = toLookUp
		return s.release(p, settled)
	}
	ctx, cancel := context.WithTimeout(resilienthttp.WithIdempotencyKey(ctx, p.Key), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL, strings.NewReader(p.Body))
	if err != nil {
		return err
	}
	before := p.State
	p.State = inDoubt // if this process dies, the call may have been sent
	if p.First.IsZero() {
		p.First = time.Now() // the provider may know the key from now on
	}
	if err := s.store(p); err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	status := 0 // without a response
	if err == nil {
		defer resp.Body.Close()
		status = resp.StatusCode
	}
	atWork := status == http.StatusConflict // the provider is at work on a request with this key
	callInDoubt := resilienthttp.InDoubt(resp, err) || atWork
	doubt := callInDoubt || before == inDoubt
	declines := slices.Contains([]int{400, 402, 422}, status) // the same request gets the same response
	wait := max(10*time.Second, time.Until(resilienthttp.NotBefore(resp, err)))
	switch {
	case status/100 == 2 && !callInDoubt:
		p.State = paid
	case doubt && declines: // this call was declined, and an earlier one may be paid
		p.State = toLookUp
		wait = settled
	case doubt: // only a 2xx, a webhook or a look-up ends it
	case declines:
		p.State = declined
	default:
		p.State = before // nothing was done: a 429, a wrong credential, not sent
	}
	return s.release(p, wait)
}

// release ends the claim. The row is due again after the wait.
func (s *shop) release(p *payment, wait time.Duration) error {
	p.Again = time.Now().Add(wait)
	p.Claimed = time.Time{}
	return s.store(p)
}

// lookUp asks the provider for a payment, by the reference in its body. No call for it has been
// made for some minutes.
func (s *shop) lookUp(ctx context.Context, p *payment) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	address := p.URL + "?reference=" + url.QueryEscape(p.Key)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	var found struct{ Status string }
	status := 0
	resp, err := s.client.Do(req)
	if err == nil {
		defer resp.Body.Close()
		status = resp.StatusCode
		_ = json.NewDecoder(resp.Body).Decode(&found) // what cannot be read has no Status
	}
	switch {
	case status == http.StatusNotFound:
		p.State = unclear // the provider has no such payment: a person decides about a new key
	case status == http.StatusOK && found.Status == "succeeded":
		p.State = paid
	case status == http.StatusOK && found.Status == "failed":
		p.State = declined
	}
	return s.release(p, settled) // if the state is the same, the payment is looked up again
}

// work makes the calls that are due. Several workers may run it at a time.
func (s *shop) work(ctx context.Context) error {
	for ctx.Err() == nil {
		p, err := s.claim(ctx, time.Now().Add(time.Minute)) // twice the time of a call
		if p == nil || err != nil {
			return err
		}
		next := s.pay
		if p.State == toLookUp {
			next = s.lookUp
		}
		if err := next(ctx, p); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// shopAt has the Base of a bank in memory.
func shopAt(bank *faulttest.Server) (*shop, *payment) {
	s := newShop(func(*payment) error { return nil })
	s.client.Transport.(*resilienthttp.Transport).Base = bank.Transport()
	return s, invoice("001", bank)
}

// invoice is the payment of an invoice.
func invoice(number string, bank *faulttest.Server) *payment {
	key := "shop-7:invoice:" + number
	return &payment{Key: key, Body: fmt.Sprintf(`{"amount":100,"reference":%q}`, key), URL: bank.URL + "/charges", State: open}
}

// forgets is a bank that forgets a key after a day. It finds a charge by its reference, which is the key here.
func forgets(charges *faulttest.Idempotent, post http.Handler) http.Handler {
	charges.TTL = 24 * time.Hour
	found := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if charges.Executions()[r.URL.Query().Get("reference")] == 0 {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(`{"status":"succeeded"}`))
	})
	return faulttest.Script{{Route: "GET /charges", Handler: usual(found)}, {Handler: post}}
}

// paymentsExample loses the responses of two calls. One is repeated after minutes. The other is repeated when the bank has forgotten
// its key.
func paymentsExample(t *testing.T) string {
	var charges faulttest.Idempotent
	losing := faulttest.Script{{Until: 2 * time.Minute, Handler: lost(&charges)}, {Handler: usual(&charges)}}
	bank := faulttest.NewInMemory(t, forgets(&charges, losing))
	s, first := shopAt(bank)
	second := invoice("002", bank)
	e := newEvents("invoice", "state before", "state after", "charges at the bank")
	step := func(at time.Duration, p *payment) {
		time.Sleep(at - time.Since(e.start))
		before, began := p.State, time.Now()
		s.claim = func(context.Context, time.Time) (*payment, error) {
			if p.due(time.Now()) {
				return p, nil
			}
			return nil, nil
		}
		require.NoError(t, s.work(t.Context()))
		e.addAt(began, p.Key[len(p.Key)-3:], before, p.State, fmt.Sprint(charges.Executions()[p.Key]))
	}
	step(0, first)
	step(time.Minute, second)
	step(4*time.Minute, first)
	step(25*time.Hour, second)
	step(25*time.Hour+10*time.Minute, second)
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
		requests            int           // 0: any number
		again               time.Duration // least wait until the row is due again; 0: 10 s
	}{
		{"charged: paid", open, paid, charges, 1, 0},
		{"the first response is lost: the retry's is the same, paid", open, paid, faulttest.Sequence(lost(charges), charges), 2, 0},
		{"all responses are lost: in doubt", open, inDoubt, lost(charges), 0, 0},
		{"in doubt, and charged: paid", inDoubt, paid, charges, 1, 0},
		{"declined: declined", open, declined, status(http.StatusPaymentRequired), 1, 0},
		{"an invalid request: declined, or it would be repeated for ever", open, declined, status(http.StatusUnprocessableEntity), 1, 0},
		{"a wrong credential: open, until it is corrected", open, open, status(http.StatusUnauthorized), 1, 0},
		{"in doubt, and declined: looked up, because an earlier call may be paid", inDoubt, toLookUp, status(http.StatusPaymentRequired), 1, settled},
		{"a decline after a lost response: looked up", open, toLookUp, faulttest.Sequence(lost(charges), status(http.StatusPaymentRequired)), 2, settled},
		{"a request with the key is at work: in doubt", open, inDoubt, status(http.StatusConflict), 1, 0},
		{"too many requests for longer than the call: open", open, open, tooMany, 1, time.Hour},
		{"away for longer than the call, as a proxy says: in doubt, because it says so after the work too", open, inDoubt, faulttest.Unavailable(time.Hour, faulttest.Seconds), 1, 0},
		{"in doubt, and then rejected: in doubt", inDoubt, inDoubt, tooMany, 1, time.Hour},
		{"a redirect's GET after a lost response: in doubt", open, inDoubt, faulttest.Script{
			{Route: "POST /charges", Handler: faulttest.Sequence(lost(charges), http.RedirectHandler("/charges/1", http.StatusSeeOther))},
			{Handler: usual(faulttest.OK(""))},
		}, 3, 0},
		{"redirected to another server after a lost response: not followed, in doubt", open, inDoubt, faulttest.Sequence(lost(charges), http.HandlerFunc(elsewhere)), 2, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			bank := faulttest.NewInMemory(t, row.bank)
			s, p := shopAt(bank)
			p.State = row.before
			if row.before == inDoubt {
				p.First = time.Now()
			}
			require.NoError(t, s.pay(t.Context(), p))
			require.Equal(t, row.after, p.State)
			require.GreaterOrEqual(t, time.Until(p.Again), max(row.again, 10*time.Second))
			require.True(t, row.requests == 0 || row.requests == bank.Total(), bank.Transcript())
		})
	}
}

// When the provider has forgotten the key, the payment is looked up, and never repeated. Until then it is repeated.
func TestPayments_forgottenKey(t *testing.T) {
	says := func(text string) http.Handler { return usual(faulttest.Reply{Body: text}) }
	for _, row := range []struct {
		name, after string
		found       http.Handler // nil: the bank finds the charge
	}{
		{"the bank has it: paid", paid, nil},
		{"the bank has it, and it has failed: declined", declined, says(`{"status":"failed"}`)},
		{"it is not settled: looked up again", toLookUp, says(`{"status":"pending"}`)},
		{"the answer cannot be read: looked up again", toLookUp, says(`<html>`)},
		{"no answer: looked up again", toLookUp, usual(faulttest.Status(http.StatusServiceUnavailable))},
		{"the bank does not have it: a person decides", unclear, usual(faulttest.Status(http.StatusNotFound))},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var charges faulttest.Idempotent
			losing := faulttest.Script{{Until: 22 * time.Hour, Handler: lost(&charges)}, {Handler: usual(&charges)}}
			handler := forgets(&charges, losing)
			if row.found != nil {
				handler = faulttest.Script{{Route: "GET /charges", Handler: row.found}, {Handler: handler}}
			}
			bank := faulttest.NewInMemory(t, handler)
			s, p := shopAt(bank)
			began := time.Now()
			require.NoError(t, s.pay(t.Context(), p))
			require.Equal(t, inDoubt, p.State)
			require.WithinDuration(t, began, p.First, 0)
			time.Sleep(21 * time.Hour)
			before := bank.Total()
			require.NoError(t, s.pay(t.Context(), p))
			require.Equal(t, inDoubt, p.State)
			require.Greater(t, bank.Total(), before, "the bank still knows the key, so the call is repeated")
			require.WithinDuration(t, began, p.First, 0, "the first call, and not the last")
			time.Sleep(4 * time.Hour)
			before = bank.Total()
			require.NoError(t, s.pay(t.Context(), p))
			require.Equal(t, toLookUp, p.State)
			require.Equal(t, before, bank.Total(), "nothing is sent")
			require.GreaterOrEqual(t, time.Until(p.Again), settled)
			time.Sleep(time.Until(p.Again))
			require.NoError(t, s.lookUp(t.Context(), p))
			require.Equal(t, row.after, p.State)
			require.GreaterOrEqual(t, time.Until(p.Again), settled)
			require.Equal(t, 1, charges.Executions()[p.Key])
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

// due is the condition of the first statement of docs/payments.md.
func (p *payment) due(now time.Time) bool {
	undecided := slices.Contains([]string{open, inDoubt, toLookUp}, p.State)
	return undecided && !p.Again.After(now) && !p.Claimed.After(now)
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
		if p.due(now) {
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
		dead.State, dead.First, dead.Claimed = inDoubt, time.Now(), dies
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
