package admission_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
)

// A14: over real sockets, at half of what its workers can do, a server rejects nothing. Each
// request has 5 s, so that a pause of the machine is not an overload.
func TestShedder_rejectsNothingAtHalfLoadOverSockets(t *testing.T) {
	const workers, service, requests = 8, 10 * ms, 800
	slots := make(chan struct{}, workers)
	s := &admission.Shedder{Priority: admission.PriorityFromHeader}
	server := httptest.NewServer(resilienthttp.DeadlineHandler{Next: s.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		slots <- struct{}{}
		sleep(time.Duration(rand.ExpFloat64() * float64(service)))
		<-slots
		w.WriteHeader(http.StatusNoContent)
	}))})
	defer server.Close()
	client := &http.Client{Transport: resilienthttp.NewBase()}
	defer client.CloseIdleConnections()
	var served atomic.Int64
	var calls sync.WaitGroup
	every := time.NewTicker(2 * service / workers)
	defer every.Stop()
	for range requests {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
			if err != nil {
				return
			}
			r.Header.Set("X-Request-Timeout-Ms", "5000")
			resp, err := client.Do(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusNoContent {
				served.Add(1)
			}
		})
		<-every.C
	}
	calls.Wait()
	require.EqualValues(t, requests, served.Load())
	require.Zero(t, s.State().Rejected)
}
