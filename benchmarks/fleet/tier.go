package fleet

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// tier is a service that sends a request to the next tier for each request. It is a
// RoundTripper, because the model has no network.
type tier struct {
	handler http.Handler
}

func newTier(next peers.Client) tier {
	return tier{resilienthttp.DeadlineHandler{Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp, err := next.Do(request(r.Context(), r.Method, r.URL.Path))
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
	})}}
}

// RoundTrip implements http.RoundTripper.
func (t tier) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := context.Cause(req.Context()); err != nil {
		return nil, err
	}
	ctx, cancel := received(req.Context())
	defer cancel()
	recorder := httptest.NewRecorder()
	t.handler.ServeHTTP(recorder, req.Clone(ctx))
	if err := context.Cause(req.Context()); err != nil {
		return nil, err
	}
	return respond(req, recorder.Code, nil), nil
}

// received is the context of a request at its receiver. It keeps the sender's cancellation
// and the call, and no deadline or other value.
func received(sent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(withCall(context.Background(), callOf(sent)))
	stop := context.AfterFunc(sent, cancel)
	return ctx, func() { stop(); cancel() }
}
