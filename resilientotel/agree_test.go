package resilientotel

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// T8, T9: State counts the same calls by their outcome as the metrics. Canceled calls are not counted.
func TestResponses_agreeWithMetrics(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			random, r := rand.New(rand.NewPCG(seed, 1)), record()
			var mu sync.Mutex
			draw := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			tr := &resilienthttp.Transport{
				Hedge: &resilienthttp.Hedge{Delay: 20 * time.Millisecond, MaxRatio: 1}, Breaker: &resilienthttp.Breaker{MinRequests: 10},
				Base: roundTripper(func(req *http.Request) (*http.Response, error) {
					select {
					case <-time.After(time.Duration(draw(60)) * time.Millisecond):
					case <-req.Context().Done():
						return nil, req.Context().Err()
					}
					switch draw(10) {
					case 0:
						return nil, io.ErrUnexpectedEOF
					case 1:
						return nil, errors.New("broken")
					case 2, 3:
						return respond(req, http.StatusServiceUnavailable), nil
					case 4:
						return respond(req, http.StatusNotFound), nil
					}
					return respond(req, http.StatusOK), nil
				}),
			}
			rt := r.Wrap(tr)
			const calls = 200
			for range calls {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(10+draw(2000))*time.Millisecond)
				if draw(4) == 0 {
					time.AfterFunc(time.Duration(1+draw(99))*time.Millisecond, cancel)
				}
				_ = called(t, rt, get(t, ctx, url))
				cancel()
			}
			synctest.Wait()
			outcomes := map[string]int{}
			all := r.metrics(t)
			for _, outcome := range []string{"success", "permanent_error", "failed", "rejected", "timeout", "canceled"} {
				for series, n := range all {
					if name, ok := outcomeIn(series); ok && name == outcome {
						outcomes[outcome] += int(n)
					}
				}
			}
			responses := tr.State().Scopes[0].Responses
			failed := responses.ClientErrors + responses.ServerErrors + responses.NetworkErrors + responses.Timeouts
			require.Equal(t, outcomes["permanent_error"]+outcomes["failed"]+outcomes["timeout"], failed, "seed %d: %v", seed, outcomes)
			require.Equal(t, outcomes["rejected"], responses.Rejected, "seed %d: %v", seed, outcomes)
			require.Equal(t, outcomes["success"], responses.Calls-responses.Rejected-failed, "seed %d: %v", seed, outcomes)
			require.Equal(t, calls, responses.Calls+outcomes["canceled"], "seed %d: %v", seed, outcomes)
		})
	}
}

// outcomeIn returns the outcome of a series of the calls' counts.
func outcomeIn(series string) (string, bool) {
	rest, ok := strings.CutPrefix(series, "#resilienthttp.client.call.duration{")
	_, value, found := strings.Cut(rest, "resilienthttp.outcome=")
	if !ok || !found {
		return "", false
	}
	return strings.TrimRight(strings.Fields(value)[0], "}"), true
}
