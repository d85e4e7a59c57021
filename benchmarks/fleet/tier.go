package fleet

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// tier is a service that answers each request by one of its own to the next: a
// RoundTripper, for there is no network before it either.
type tier struct {
	handler http.Handler
}

func newTier(next peers.Client) tier {
	return tier{resilienthttp.Deadline{}.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp, err := next.Do(request(r.Context(), r.Method, r.URL.Path))
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
	}))}
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

// received is the context that a request has on the other side of a network: its
// caller's cancellation comes over, and nothing else; here, the call that it
// belongs to.
func received(sent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(withCall(context.Background(), callOf(sent)))
	stop := context.AfterFunc(sent, cancel)
	return ctx, func() { stop(); cancel() }
}
