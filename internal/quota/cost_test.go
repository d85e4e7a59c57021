package quota

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// tokens is a Set of which responses have shown a quota of tokens.
type tokens struct {
	t     *testing.T
	set   *Set
	reset time.Time
}

func newTokens(t *testing.T) *tokens {
	t.Helper()
	s := New(Config{MaxWait: time.Hour, MaxBlock: time.Hour, Follow: true}).Set("api")
	q := &tokens{t, s, time.Now().Add(time.Minute)}
	s.Observe(Request{}, q.response(http.StatusOK, 1000), time.Now(), time.Now(), 0)
	return q
}

// response is a response that shows what remains of 1,000 tokens a minute; a negative number shows nothing.
func (q *tokens) response(status, remaining int) *Response {
	r := &Response{Status: status}
	if remaining >= 0 {
		r.Quota, _ = ratelimitheader.Parse(http.Header{
			"X-Ratelimit-Limit-Tokens": {"1000"}, "X-Ratelimit-Remaining-Tokens": {strconv.Itoa(remaining)},
			"X-Ratelimit-Reset-Tokens": {time.Until(q.reset).String()},
		}, time.Now())
	}
	return r
}

// admit returns the permit of a request, or when it would be sent.
func (q *tokens) admit(cost int64) (*Permit, time.Duration) {
	q.t.Helper()
	p, rejected := q.set.Admit(q.t.Context(), Request{Cost: cost, AtOnce: true}, time.Now())
	if rejected != nil {
		return nil, time.Until(rejected.NotBefore)
	}
	return &p, 0
}

func (q *tokens) requireLeft(want int64) {
	q.t.Helper()
	q.set.limiter.Each(time.Now(), func(s Status) { require.Equal(q.t, want, s.Remaining) })
}

// §4.17: a request takes its estimate from the quota until a response shows what remains.
func TestQuota_cost(t *testing.T) {
	const ok, throttled = http.StatusOK, http.StatusTooManyRequests
	for _, row := range []struct {
		name string
		run  func(q *tokens)
		left int64
	}{
		{"in flight: taken", func(q *tokens) { q.admit(400); q.admit(300) }, 300},
		{"an unknown cost takes nothing", func(q *tokens) { q.admit(0) }, 1000},
		{"not enough: until the reset", func(q *tokens) {
			p, _ := q.admit(700)
			p.Done(q.response(ok, 300), time.Now())
			_, wait := q.admit(400)
			require.Equal(q.t, time.Until(q.reset), wait)
		}, 300},
		{"not enough for a large request: a small one is sent", func(q *tokens) {
			p, _ := q.admit(700)
			p.Done(q.response(ok, 300), time.Now())
			p, _ = q.admit(300)
			require.NotNil(q.t, p)
		}, 0},
		{"above the limit: sent when the quota is full", func(q *tokens) {
			p, _ := q.admit(5000)
			require.NotNil(q.t, p)
			_, wait := q.admit(1)
			require.Zero(q.t, wait, "those in flight may take less")
		}, 0},
		{"responses in another order: the later request's count, and what was sent after it", func(q *tokens) {
			first, _ := q.admit(100)
			second, _ := q.admit(200)
			q.admit(300)
			second.Done(q.response(ok, 700), time.Now())
			first.Done(q.response(ok, 900), time.Now())
		}, 400},
		{"canceled: returned", func(q *tokens) { p, _ := q.admit(400); p.Cancel(time.Now()) }, 1000},
		{"canceled: no share is learned from it", func(q *tokens) {
			p, _ := q.admit(200)
			p.Cancel(time.Now())
			p, _ = q.admit(200)
			p.Done(q.response(ok, 800), time.Now())
			q.admit(400)
		}, 400},
		{"canceled, and another one is in flight: no share is learned from it", func(q *tokens) {
			canceled, _ := q.admit(200)
			p, _ := q.admit(200)
			canceled.Cancel(time.Now())
			p.Done(q.response(ok, 800), time.Now())
			q.admit(400)
		}, 400},
		{"rejected when a later response has shown what remains: not returned again", func(q *tokens) {
			rejected, _ := q.admit(400)
			p, _ := q.admit(100)
			p.Done(q.response(ok, 500), time.Now())
			rejected.Done(q.response(throttled, -1), time.Now())
		}, 500},
		{"rejected after the reset: not returned to the new window", func(q *tokens) {
			rejected, _ := q.admit(900)
			time.Sleep(time.Minute)
			q.admit(100)
			rejected.Done(q.response(throttled, -1), time.Now())
		}, 900},
		{"renewed after the reset: taken from the new window", func(q *tokens) {
			p, _ := q.admit(900)
			time.Sleep(time.Minute)
			require.True(q.t, p.renew(time.Now()))
		}, 100},
		{"not sent: returned", func(q *tokens) { p, _ := q.admit(400); p.Done(&Response{NotSent: true}, time.Now()) }, 1000},
		{"lost: taken", func(q *tokens) { p, _ := q.admit(400); p.Done(&Response{}, time.Now()) }, 600},
		{"rejected without a count: returned", func(q *tokens) { p, _ := q.admit(400); p.Done(q.response(throttled, -1), time.Now()) }, 1000},
		{"rejected because of its cost: smaller ones are sent", func(q *tokens) {
			p, _ := q.admit(400)
			p.Done(q.response(throttled, 90), time.Now())
			p, _ = q.admit(90)
			require.NotNil(q.t, p)
		}, 0},
		{"rejected although it seemed enough: nothing is left", func(q *tokens) {
			p, _ := q.admit(50)
			p.Done(q.response(throttled, 90), time.Now())
		}, 0},
		{"a share is learned", func(q *tokens) {
			p, _ := q.admit(400)
			p.Done(q.response(ok, 960), time.Now()) // a tenth
			q.admit(400)
		}, 920},
		{"a share of two at most, because others may use the quota", func(q *tokens) {
			p, _ := q.admit(100)
			p.Done(q.response(ok, 500), time.Now())
			q.admit(100)
		}, 300},
		{"the reset: a new window owes nothing", func(q *tokens) {
			p, _ := q.admit(400)
			p.Done(q.response(ok, 600), time.Now())
			q.admit(500)
			time.Sleep(time.Minute)
			q.admit(500)
			p, _ = q.admit(500)
			require.NotNil(q.t, p)
		}, 0},
		{"the reset: the share is learned from the new window", func(q *tokens) {
			p, _ := q.admit(400)
			p.Done(q.response(ok, 600), time.Now())
			time.Sleep(time.Minute)
			q.reset = q.reset.Add(time.Minute)
			p, _ = q.admit(200)
			p.Done(q.response(ok, 800), time.Now())
			q.admit(300)
		}, 500},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			q := newTokens(t)
			time.Sleep(time.Millisecond) // requests after the one that has shown the quota
			row.run(q)
			q.requireLeft(row.left)
		})
	}
}
