package outerclient

import (
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// A hundred thousand failures keep only the latest requests in memory, and a request is forgotten after
// repeatWindow.
func TestFailedCalls_bounded(t *testing.T) {
	f := NewFailedCalls()
	require.False(t, f.Any(0), "no failure")
	const n = 100_000
	for i := range uint64(n) {
		f.Add(RequestID{text: i + 1}, time.Duration(i))
		require.LessOrEqual(t, f.requests.Len(), scope.DefaultMax)
	}
	require.True(t, f.Has(RequestID{text: n}, n))
	require.True(t, f.Has(RequestID{text: n - scope.DefaultMax/2}, n))
	require.False(t, f.Has(RequestID{text: 1}, n))
	for _, id := range []uint64{n, n - scope.DefaultMax/2} {
		f.Remove(RequestID{text: id})
		require.False(t, f.Has(RequestID{text: id}, n))
	}
	f.Add(RequestID{text: 1}, n)
	f.Add(RequestID{text: 2}, n+repeatWindow/2)
	require.True(t, f.Has(RequestID{text: 1}, n+repeatWindow-1))
	require.False(t, f.Has(RequestID{text: 1}, n+repeatWindow), "its failure has expired")
	require.True(t, f.Has(RequestID{text: 2}, n+repeatWindow))
	require.Greater(t, f.until.Load(), int64(n))
	require.Less(t, f.until.Load(), int64(n+2*repeatWindow))
}

// §4.18: as many failures as are kept do not keep their URLs, which may be long.
func TestFailedCalls_longURLs(t *testing.T) {
	const length = 4 << 10
	f := NewFailedCalls()
	before := heap()
	for i := range scope.DefaultMax {
		r := &http.Request{URL: &url.URL{Host: "api.test", RawQuery: strings.Repeat("q", length)}, Header: http.Header{}}
		id := f.Named(strconv.Itoa(i), "", "", "", r.URL)
		f.Keep(id, r, "key", "", 0, 0)
		require.NotNil(t, f.Sent(id, r, 0))
	}
	require.Less(t, heap()-before, int64(scope.DefaultMax*length/4))
	require.Equal(t, scope.DefaultMax, f.requests.Len())
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// §4.8: a program uses one URL object for all its requests. The runtime puts a new Header map where it has freed that of a
// failed request. The new request must not have the key of the failed one.
func TestPointers(t *testing.T) {
	shared := &url.URL{Scheme: "http", Host: "api.test"}
	request := func() *http.Request { return &http.Request{URL: shared, Header: http.Header{"A": {"b"}}} }
	for _, row := range []struct {
		name string
		next func(failed *http.Request) *http.Request
		same bool
	}{
		{"the same request", func(failed *http.Request) *http.Request { return failed }, true},
		{"a shallow copy", func(failed *http.Request) *http.Request { return new(*failed) }, true},
		{"another Header", func(*http.Request) *http.Request { return request() }, false},
		{"another URL", func(failed *http.Request) *http.Request {
			return &http.Request{URL: new(*shared), Header: failed.Header}
		}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			failed := request()
			id := Pointers(failed)
			require.True(t, id.known())
			require.Equal(t, row.same, id == Pointers(row.next(failed)))
			runtime.KeepAlive(failed)
		})
	}
	t.Run("no Header", func(t *testing.T) {
		require.False(t, Pointers(&http.Request{URL: shared}).known())
	})
	t.Run("another Header at the same address", func(t *testing.T) {
		ids, freed := map[RequestID]bool{}, map[uintptr]bool{}
		for range 1000 {
			failed := request()
			ids[Pointers(failed)] = true
			freed[reflect.ValueOf(failed.Header).Pointer()] = true
		}
		runtime.GC()
		runtime.GC()
		for range 1_000_000 {
			next := request()
			if freed[reflect.ValueOf(next.Header).Pointer()] {
				require.NotContains(t, ids, Pointers(next))
				return
			}
		}
		t.Fatal("no address was used again")
	})
}
