package quota

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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

// do makes a request, and its response.
func (q *tokens) do(cost int64, status, remaining int) {
	q.t.Helper()
	q.requireSent(cost).Done(q.response(status, remaining), time.Now())
}

func (q *tokens) requireSent(cost int64) *Permit {
	q.t.Helper()
	p, _ := q.admit(cost)
	require.NotNil(q.t, p)
	return p
}

func (q *tokens) requireLeft(want int64) {
	q.t.Helper()
	q.set.limiter.Each(time.Now(), func(_ string, s Quota) { require.Equal(q.t, want, s.Remaining) })
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
			q.do(700, ok, 300)
			_, wait := q.admit(400)
			require.Equal(q.t, time.Until(q.reset), wait)
		}, 300},
		{"not enough for a large request: a small one is sent", func(q *tokens) {
			q.do(700, ok, 300)
			q.requireSent(300)
		}, 0},
		{"above the limit: sent when the quota is full", func(q *tokens) {
			q.requireSent(5000)
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
			q.do(200, ok, 800)
			q.admit(400)
		}, 400},
		{"canceled, and another one is in flight: no share is learned from it", func(q *tokens) {
			canceled, _ := q.admit(200)
			p, _ := q.admit(200)
			canceled.Cancel(time.Now())
			p.Done(q.response(ok, 800), time.Now())
			q.admit(400)
		}, 400},
		{"canceled, before the response of an earlier one: returned", func(q *tokens) {
			p, _ := q.admit(100)
			canceled, _ := q.admit(800)
			canceled.Cancel(time.Now())
			p.Done(q.response(ok, 900), time.Now())
			q.requireSent(500)
		}, 400},
		{"rejected when a later response has shown what remains: not returned again", func(q *tokens) {
			rejected, _ := q.admit(400)
			q.do(100, ok, 500)
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
		{"rejected without a count: returned", func(q *tokens) { q.do(400, throttled, -1) }, 1000},
		{"rejected because of its cost: smaller ones are sent", func(q *tokens) {
			q.do(400, throttled, 90)
			q.requireSent(90)
		}, 0},
		{"rejected although it seemed enough: nothing is left", func(q *tokens) {
			q.do(50, throttled, 90)
		}, 0},
		{"a share is learned", func(q *tokens) {
			q.do(400, ok, 960) // a tenth
			q.admit(400)
		}, 920},
		{"a share is learned of a bucket that refills meanwhile", func(q *tokens) {
			for range 60 { // requests take as much as the bucket gains, so the count stays
				q.reset = time.Now().Add(6 * time.Second) // of 1,000 a minute, 100 lack
				q.do(50, ok, 900)
				time.Sleep(3 * time.Second)
			}
			q.admit(400)
		}, 550},
		{"an unknown cost: no share is learned from it", func(q *tokens) {
			q.do(0, ok, 500)
			q.do(100, ok, 400)
			q.admit(100)
		}, 300},
		{"a share of two at most, because others may use the quota", func(q *tokens) {
			q.do(100, ok, 500)
			q.admit(100)
		}, 300},
		{"the server counts concurrent requests in another order: a share of all", func(q *tokens) {
			var sent []*Permit
			for range 3 {
				sent = append(sent, q.requireSent(100))
				time.Sleep(time.Millisecond)
			}
			sent[2].Done(q.response(ok, 950), time.Now()) // counted first
			sent[0].Done(q.response(ok, 900), time.Now())
			sent[1].Done(q.response(ok, 850), time.Now())
			q.admit(400) // half of it, and a little more, because the first has faded
		}, 620},
		{"rejected although its share seemed enough: nothing is left", func(q *tokens) {
			q.do(400, ok, 960) // a tenth
			q.do(400, throttled, 90)
		}, 0},
		{"the reset: a new window owes nothing", func(q *tokens) {
			q.do(400, ok, 600)
			q.admit(500)
			time.Sleep(time.Minute)
			q.admit(500)
			q.requireSent(500)
		}, 0},
		{"the reset: the share is learned from the new window", func(q *tokens) {
			q.do(400, ok, 600)
			time.Sleep(time.Minute)
			q.reset = q.reset.Add(time.Minute)
			q.do(200, ok, 800)
			q.admit(300)
		}, 500},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			q := &tokens{t, New(Config{MaxWait: time.Hour, MaxBlock: time.Hour, Follow: true}).Set("api"), time.Now().Add(time.Minute)}
			q.set.Observe(Request{}, q.response(http.StatusOK, 1000), time.Now(), time.Now(), 0)
			time.Sleep(time.Millisecond) // requests after the one that has shown the quota
			row.run(q)
			q.requireLeft(row.left)
		})
	}
}

// An estimate is one of tokens, so a quota of requests takes one of each call, whatever the estimate is.
func TestCost_quotaOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{MaxWait: time.Hour, MaxBlock: time.Hour})
		first := newExchange(t.Context(), l)
		require.Nil(t, first.enter())
		first.shows(10, 5, 60)
		for range 5 {
			e := newExchange(t.Context(), l)
			e.Cost = 1000
			require.Nil(t, e.enter())
			assert.False(t, e.Waited, "more is left than one request takes")
		}
	})
}

// A request that loses its response after the reset was counted before it, if at all.
func TestQuota_lostResponseOfTheWindowBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{MaxWait: time.Hour, MaxBlock: time.Hour})
		first := newExchange(t.Context(), l)
		require.Nil(t, first.enter())
		first.shows(10, 9, 5)
		lost := newExchanges(t, l, 9)
		time.Sleep(6 * time.Second)
		require.Nil(t, newExchange(t.Context(), l).enter(), "it begins a window")
		for _, e := range lost {
			e.Done(&Response{}, time.Now())
		}
		for _, e := range newExchanges(t, l, 9) {
			assert.False(t, e.Waited, "all of the new window is left")
		}
	})
}

// newExchanges sends requests at once.
func newExchanges(t *testing.T, l *Limiter, n int) (all []*exchange) {
	for range n {
		e := newExchange(t.Context(), l)
		require.Nil(t, e.enter())
		all = append(all, e)
	}
	return all
}
