package endpoints_test

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// tokenQuota is an API with a quota of tokens for each credential, and OpenAI's headers.
type tokenQuota struct {
	limit, cost float64 // tokens in a minute, and of a call
	window      bool    // a fixed window; else a token bucket
	silent      bool    // a rejection has no Retry-After
	takes       time.Duration

	mu       sync.Mutex
	tokens   map[string]float64
	at       map[string]time.Time
	served   int
	rejected int
}

func (q *tokenQuota) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := q.take(w.Header(), r.Host+r.Header.Get("Authorization"))
	if status == http.StatusOK {
		time.Sleep(q.takes)
	}
	w.WriteHeader(status)
}

// take takes the tokens of a call, and describes the quota.
func (q *tokenQuota) take(h http.Header, of string) (status int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, rate := time.Now(), q.limit/60
	last, known := q.at[of]
	switch {
	case !known || q.window && now.Sub(last) >= time.Minute:
		q.tokens[of], q.at[of] = q.limit, now
	case !q.window:
		q.tokens[of], q.at[of] = min(q.tokens[of]+now.Sub(last).Seconds()*rate, q.limit), now
	}
	status = http.StatusOK
	if q.tokens[of] < q.cost {
		status = http.StatusTooManyRequests
		q.rejected++
	} else {
		q.served++
		q.tokens[of] -= q.cost
	}
	full, enough := (q.limit-q.tokens[of])/rate, (q.cost-q.tokens[of])/rate
	if q.window {
		full = time.Until(q.at[of].Add(time.Minute)).Seconds()
		enough = full
	}
	h.Set("X-Ratelimit-Limit-Requests", "500")
	h.Set("X-Ratelimit-Remaining-Requests", "499")
	h.Set("X-Ratelimit-Reset-Requests", "120ms")
	h.Set("X-Ratelimit-Limit-Tokens", strconv.Itoa(int(q.limit)))
	h.Set("X-Ratelimit-Remaining-Tokens", strconv.Itoa(int(q.tokens[of])))
	h.Set("X-Ratelimit-Reset-Tokens", time.Duration(full*float64(time.Second)).Round(time.Millisecond).String())
	if status != http.StatusOK && !q.silent {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(enough))))
	}
	return status
}

// Row 66: 60 calls of 3,000 tokens in 30 s meet two keys and a region of 30,000 tokens a minute each. §4.17: each request
// takes its Cost in advance, and responses correct a cost that is too low or too high.
func TestTransport_tokens(t *testing.T) {
	const second = time.Second
	for _, row := range []struct {
		name     string
		api      *tokenQuota
		cost     float64 // 0: unknown
		served   int     // at least
		rejected int     // at most
	}{
		{"a bucket", &tokenQuota{takes: 2 * second}, 3000, 60, 0},
		{"a bucket, quick responses", &tokenQuota{takes: second / 5}, 3000, 60, 0},
		{"a bucket, slow responses: the first ones show nothing for 15 s", &tokenQuota{takes: 15 * second}, 3000, 60, 3},
		{"a bucket, rejections without Retry-After", &tokenQuota{takes: 2 * second, silent: true}, 3000, 60, 0},
		{"a window", &tokenQuota{takes: 2 * second, window: true}, 3000, 60, 0},
		{"a window, rejections without Retry-After", &tokenQuota{takes: 2 * second, window: true, silent: true}, 3000, 60, 0},
		{"a bucket, half of the cost", &tokenQuota{takes: 2 * second}, 1500, 60, 6},
		{"a window, half of the cost", &tokenQuota{takes: 2 * second, window: true}, 1500, 60, 6},
		{"a bucket, twice the cost", &tokenQuota{takes: 2 * second}, 6000, 60, 0},
		{"a window, twice the cost", &tokenQuota{takes: 2 * second, window: true}, 6000, 60, 0},
		{"a cost above the limit", &tokenQuota{takes: 2 * second}, 1e6, 60, 0},
		{"an unknown cost", &tokenQuota{takes: 2 * second}, 0, 40, 100},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			api := row.api
			api.limit, api.cost, api.tokens, api.at = 30_000, 3000, map[string]float64{}, map[string]time.Time{}
			l := newList(t, func(tr *endpoints.Transport) {
				keyPool(tr)
				region := tr.Endpoints[0]
				region.Name, region.URL = "region", parse(t, "http://b.test")
				tr.Endpoints = append(tr.Endpoints, region)
				if row.cost > 0 {
					tr.Transport.RateLimit = &resilienthttp.RateLimit{Cost: func(*http.Request) float64 { return row.cost }}
				}
			}, api, api)
			all := load{rate: 2, length: 30 * second, method: http.MethodPost, deadline: 90 * second}.run(t, l, "http://a.test/v1/chat", nil)
			t.Log(len(all), "calls,", api.served, "served,", api.rejected, "rejected by the servers")
			assert.Len(t, all, 60)
			assert.GreaterOrEqual(t, int(math.Round(share(all, succeeded)*60)), row.served)
			assert.LessOrEqual(t, api.rejected, row.rejected)
		})
	}
}
