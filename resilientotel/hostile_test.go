package resilientotel

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// T4: a server that sends any status and any version of HTTP makes a bounded number of series.
func TestMetrics_hostileServer(t *testing.T) {
	r, n := record(), 0
	rt := r.Wrap(&resilienthttp.Transport{Policy: resilienthttp.Policy{MaxAttempts: -1}, Breaker: never(), Base: roundTripper(func(req *http.Request) (*http.Response, error) {
		n++
		resp := respond(req, 100+n%900)
		resp.ProtoMajor, resp.ProtoMinor = n%10, n/10%10
		resp.Proto = fmt.Sprintf("HTTP/%d.%d", resp.ProtoMajor, resp.ProtoMinor)
		return resp, nil
	})})
	for range 5000 {
		_ = called(t, rt, get(t, t.Context(), url))
	}
	series, statuses := map[string]int{}, 500
	for name := range r.metrics(t) {
		metric, _, _ := strings.Cut(name, "{")
		series[metric]++
	}
	require.LessOrEqual(t, series["http.client.request.duration"], 5*(statuses+1))
	require.LessOrEqual(t, series["resilienthttp.client.call.duration"], statuses+1)
}
