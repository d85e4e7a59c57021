// Gateway is an API gateway with a deadline, load shedding, quotas and idempotency. A request passes
//
//	auth → DeadlineHandler → Shedder → Quota → idempotency → the API
//
// Run it from the root of the repository, with the URL of an API:
//
//	go run ./examples/gateway -api http://127.0.0.1:8080
//	curl -i -H 'Authorization: Bearer shop-token' -H 'Idempotency-Key: 1' -d '{"reference":"1","amount":1}' http://127.0.0.1:8082/charges
//
// The shop is the API's own tier: its priority header is trusted. The partner and the scraper have the
// free plan, a twentieth of the capacity. Bulk is a tenant with a large plan. http://127.0.0.1:8082/state
// is the state page.
//
// gateway_test.go has clients and an API.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8082", "address")
	api := flag.String("api", "http://127.0.0.1:8080", "URL of the API")
	capacity := flag.Int("capacity", 400, "requests per second that the API can serve; the quotas are parts of it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	listener, err := net.Listen("tcp", *listen)
	if err == nil {
		err = run(ctx, listener, *api, *capacity)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, listener net.Listener, api string, capacity int) error {
	target, err := url.Parse(api)
	if err != nil || target.Host == "" {
		return errors.Join(fmt.Errorf("api is %q, want a URL", api), err)
	}
	transport := new(resilienthttp.Transport)
	g, err := newGateway(proxy(target, transport), capacity)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", g.handler())
	mux.Handle("/state", newPage(g, map[string]*resilienthttp.Transport{"the API": transport}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		ended <- server.Shutdown(ctx) // requests in progress are finished
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}

// proxy forwards requests to the API. The Transport sends the deadline, the priority and the key of each
// request.
func proxy(api *url.URL, transport *resilienthttp.Transport) http.Handler {
	return &httputil.ReverseProxy{Transport: transport, ModifyResponse: passOnDoubt, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(api)
		r.Out.SetBasicAuth(accountOf(r.In).name, "") // the token is the gateway's
	}}
}

var errInDoubt = errors.New("gateway: an earlier attempt may have been executed, and the last response does not tell of it")

// passOnDoubt returns an error, and so the client gets a 502, if the response would hide a doubt. The client sees the last
// response only, but the Transport may have sent the request several times. If the first response was lost, a 429 or a
// Request-Executed: ?0 to the second attempt is true of that attempt only. The client would take it for the whole request,
// and charge the card a second time.
func passOnDoubt(resp *http.Response) error {
	if !resilienthttp.InDoubt(resp, nil) {
		return nil
	}
	failed := resp.StatusCode >= http.StatusInternalServerError
	if failed && idempotency.ClassifyForwarded(resp.StatusCode, resp.Header) == idempotency.Unknown {
		return nil // the client reads the doubt from this response too
	}
	return errInDoubt
}
