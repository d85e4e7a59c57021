//go:build !race

package resilienthttp

import (
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRateLimitMemory: a million hosts, credentials, routes or buckets leave
// memory flat (DESIGN §4.18).
func TestRateLimitMemory(t *testing.T) {
	n := 100_000 // what is forgotten after these is forgotten after a million
	for _, row := range []struct {
		name string
		vary func(a *attempt, i int)
	}{
		{"hosts", func(a *attempt, i int) { a.call.scope = "host-" + strconv.Itoa(i) }},
		{"credentials", func(a *attempt, i int) { a.call.request.Header["Authorization"][0] = strconv.Itoa(i) }},
		{"routes", func(a *attempt, i int) { a.call.request.URL.Path = fmt.Sprintf("/path-%d/x-%d/y", i%1000, i) }},
		{"buckets", func(a *attempt, i int) {
			a.record.Response.Header["X-Ratelimit-Bucket"][0] = "bucket-" + strconv.Itoa(i)
		}},
		{"axes", func(a *attempt, i int) {
			a.record.Response.Header = http.Header{}
			quotaSet(a.record.Response.Header, fmt.Sprintf("X-RateLimit-Limit-A%d", i), 10,
				fmt.Sprintf("X-RateLimit-Remaining-A%d", i), 9, fmt.Sprintf("X-RateLimit-Reset-A%d", i), 10)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := &RateLimit{Limit: 1e9}
			a, resp := quotaAttempt(t.Context(), l, http.Header{"Authorization": {""}})
			resp.Header = http.Header{
				"X-Ratelimit-Limit": {"1000000000"}, "X-Ratelimit-Remaining": {"999999999"}, "X-Ratelimit-Reset": {"50"},
				"X-Ratelimit-Bucket": {"b"},
			}
			run := func(from, to int) {
				for i := from; i < to; i++ {
					row.vary(a, i)
					now := time.Now()
					_, err := l.enter(a, now)
					require.Nil(t, err)
					said := readAnswer(a.record.Response, now)
					a.turn.done(now, a, &said)
				}
			}
			run(0, n/3) // more than any table holds
			before := heapInUse()
			run(n/3, n)
			grown := int64(heapInUse()) - int64(before)
			assert.Less(t, grown, int64(2<<20))
			runtime.KeepAlive(l)
		})
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
