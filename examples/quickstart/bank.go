package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// order is what a client asks: POST /v1/charges.
type order struct {
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"` // in cents
	Currency  string `json:"currency"`
}

// charge is what the bank answers: an order that has been booked.
type charge struct {
	ID string `json:"id"`
	order
}

// bank is a payment API as one meets them in real life. It is correct: whoever
// sends an Idempotency-Key is charged once for it. But the way to it is bad.
type bank struct {
	url    string
	server *http.Server

	ledger ledger
	memory memory
	quota  quota
	faults faults
	counts struct {
		requests, lost, overloaded, held, dark, throttled, repeated atomic.Int64
	}
}

func openBank(plan faultPlan) (*bank, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &bank{
		url: "http://" + listener.Addr().String() + "/v1/charges",
		// 200 a second, counted in quarters lest they all come in its first tenth.
		quota:  quota{limit: 50, window: 250 * time.Millisecond},
		faults: faults{faultPlan: plan, random: rand.New(rand.NewPCG(plan.seed, 1))},
	}
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = b.server.Serve(listener) }() // ends with http.ErrServerClosed
	return b, nil
}

// close waits for requests that are still at work. It may be called again.
func (b *bank) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if b.server.Shutdown(ctx) != nil {
		_ = b.server.Close()
	}
}

// ServeHTTP is a request's way through the bank, with all that can happen on it.
func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.counts.requests.Add(1)
	if b.faults.dark(time.Now()) {
		b.counts.dark.Add(1)
		hangUp(w) // nobody is at home: nothing was read, nothing done
		return
	}
	if ok, reset := b.quota.take(time.Now(), w.Header()); !ok {
		b.counts.throttled.Add(1)
		comeBackIn(reset, w.Header())
		problem(http.StatusTooManyRequests, "quota exhausted").write(w)
		return
	}
	fault := b.faults.draw()
	if fault == overloaded {
		b.counts.overloaded.Add(1)
		comeBackIn(50*time.Millisecond, w.Header())
		problem(http.StatusServiceUnavailable, "overloaded").write(w)
		return
	}
	request, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		problem(http.StatusBadRequest, "unreadable").write(w)
		return
	}
	answer, repeated := b.memory.once(r.Header.Get("Idempotency-Key"), request, func() answer {
		if fault == held {
			b.counts.held.Add(1)
			time.Sleep(b.faults.holdFor) // and then charges, whether the caller is still there or not
		}
		return b.charge(request)
	})
	if repeated {
		b.counts.repeated.Add(1)
	}
	if fault == lost {
		b.counts.lost.Add(1)
		hangUp(w) // charged, and nobody will hear of it
		return
	}
	answer.write(w)
}

// charge is the work itself.
func (b *bank) charge(request []byte) answer {
	var o order
	if err := json.Unmarshal(request, &o); err != nil || o.Reference == "" || o.Amount <= 0 {
		return problem(http.StatusBadRequest, "not an order")
	}
	time.Sleep(5 * time.Millisecond) // what a database would take
	return newAnswer(http.StatusCreated, b.ledger.book(o))
}

// answer is a response that can be kept and given again.
type answer struct {
	status int
	body   []byte
}

func newAnswer(status int, v any) answer {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot be: only this file's types are given
	}
	return answer{status, body}
}

func problem(status int, title string) answer {
	return newAnswer(status, map[string]any{"status": status, "title": title})
}

func (a answer) write(w http.ResponseWriter) {
	contentType := "application/json"
	if a.status >= 400 {
		contentType = "application/problem+json"
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// hangUp resets the connection: no response, not even a polite end.
func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // RST instead of FIN
	}
	conn.Close()
}

// comeBackIn asks the client to wait. Retry-After knows only whole seconds, so
// many APIs send the exact time beside it.
func comeBackIn(d time.Duration, h http.Header) {
	h.Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
	h.Set("Retry-After-Ms", strconv.FormatInt(d.Milliseconds()+1, 10))
}

// quota lets limit requests through in each window.
type quota struct {
	limit  int
	window time.Duration

	mu    sync.Mutex
	ends  time.Time
	taken int
}

// take tells whether there is one left, when there will be more, and the client
// about both.
func (q *quota) take(now time.Time, h http.Header) (ok bool, reset time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !now.Before(q.ends) {
		q.ends, q.taken = now.Add(q.window), 0
	}
	if ok = q.taken < q.limit; ok {
		q.taken++
	}
	reset = q.ends.Sub(now)
	h.Set("X-Ratelimit-Limit", strconv.Itoa(q.limit))
	h.Set("X-Ratelimit-Remaining", strconv.Itoa(q.limit-q.taken))
	h.Set("X-Ratelimit-Reset", strconv.FormatFloat(float64(q.ends.UnixMilli())/1000, 'f', 3, 64))
	h.Set("X-Ratelimit-Reset-After", strconv.FormatFloat(reset.Seconds(), 'f', 3, 64))
	return ok, reset
}

// faultPlan says how bad a bank is: the shares of its requests that go wrong.
type faultPlan struct {
	seed                   uint64
	lost, overloaded, held float64
	holdFor                time.Duration
	darkAfter              int // requests
	darkFor                time.Duration
}

type fault int

const (
	none       fault = iota
	lost             // charges, and the answer never arrives
	overloaded       // 503, charges nothing
	held             // charges late
)

// faults draws what goes wrong.
type faults struct {
	faultPlan

	mu       sync.Mutex
	random   *rand.Rand
	requests int
	darkFrom time.Time
}

func (f *faults) draw() fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch p := f.random.Float64(); {
	case p < f.lost:
		return lost
	case p < f.lost+f.overloaded:
		return overloaded
	case p < f.lost+f.overloaded+f.held:
		return held
	}
	return none
}

// dark is true for darkFor, once, from the request on that follows darkAfter.
func (f *faults) dark(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if f.darkFrom.IsZero() && f.requests > f.darkAfter {
		f.darkFrom = now
	}
	return !f.darkFrom.IsZero() && now.Sub(f.darkFrom) < f.darkFor
}

// readCharge reads what a bank has answered, for both clients.
func readCharge(resp *http.Response) (charge, error) {
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return charge{}, &statusError{resp.StatusCode}
	}
	var c charge
	err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&c)
	if err == nil && c.ID == "" {
		err = errors.New("a charge without an ID")
	}
	return c, err
}

// statusError is an answer that is not a charge.
type statusError struct{ status int }

func (e *statusError) Error() string {
	return "the bank answers " + strconv.Itoa(e.status) + " " + http.StatusText(e.status)
}
