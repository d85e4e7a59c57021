//go:build !race

package quota

import (
	"fmt"
	"math"
	"net/http"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// §4.18: a million hosts, credentials, routes or buckets use constant memory.
func TestMemory(t *testing.T) {
	const places, n = 256, 10_000 // enough to evict each entry many times
	for _, row := range []struct {
		name string
		vary func(e *exchange, i int)
	}{
		{"hosts", func(e *exchange, i int) { e.scope = "host-" + strconv.Itoa(i) }},
		{"credentials", func(e *exchange, i int) { e.Credential = uint64(i) }},
		{"routes", func(e *exchange, i int) { e.Path = fmt.Sprintf("/path-%d/x-%d/y", i%1000, i) }},
		{"buckets", func(e *exchange, i int) {
			e.header["X-Ratelimit-Bucket"][0] = "bucket-" + strconv.Itoa(i)
		}},
		{"axes", func(e *exchange, i int) {
			e.header = http.Header{}
			setFields(e.header, fmt.Sprintf("X-RateLimit-Limit-A%d", i), 10,
				fmt.Sprintf("X-RateLimit-Remaining-A%d", i), 9, fmt.Sprintf("X-RateLimit-Reset-A%d", i), 10)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := with(Config{Limit: 1e9})
			l.sets.Max, l.accounts.Max, l.buckets.Max, l.routes.Max = places, places, places, places
			e := newExchange(t.Context(), l)
			e.header = http.Header{
				"X-Ratelimit-Limit": {"1000000000"}, "X-Ratelimit-Remaining": {"999999999"}, "X-Ratelimit-Reset": {"50"},
				"X-Ratelimit-Bucket": {"b"},
			}
			run := func(from, to int) {
				for i := from; i < to; i++ {
					row.vary(e, i)
					require.Nil(t, e.enter())
					e.done()
				}
			}
			run(0, n/3) // more than any table holds
			grown := int64(math.MaxInt64)
			for i := 0; i < 3 && grown >= 128<<10; i++ { // a leak grows each time, the garbage of other tests does not
				before := heapInUse()
				run((i+1)*n, (i+2)*n)
				grown = int64(heapInUse()) - int64(before)
			}
			assert.Less(t, grown, int64(128<<10))
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
