package peers

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"
	"unsafe"

	breaker "github.com/afex/hystrix-go/hystrix"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/gojek/heimdall/v7/hystrix"
)

func heimdalls() []Peer {
	return []Peer{
		{Name: "heimdall", Note: "the example of its README: 5 attempts, 2 ms to 9 ms apart", New: func(s Setting) Client {
			return httpclient.NewClient(
				httpclient.WithHTTPClient(transport(s.Base)),
				httpclient.WithRetrier(heimdall.NewRetrier(heimdall.NewExponentialBackoff(2*time.Millisecond, 9*time.Millisecond, 2, 2*time.Millisecond))),
				httpclient.WithRetryCount(4))
		}},
		{Name: "heimdall-full", Note: "4 attempts, exponential backoff with jitter, hystrix: breaker and at most 1000 requests in flight", New: newHystrix},
	}
}

// hystrixClient is the client with hystrix-go. Its circuits are global variables with
// endless goroutines.
type hystrixClient struct {
	*hystrix.Client
	name string
}

var hystrixNames atomic.Int64 //nolint:gochecknoglobals // circuits are global

func newHystrix(s Setting) Client {
	name := fmt.Sprintf("circuit-%d", hystrixNames.Add(1))
	return &hystrixClient{name: name, Client: hystrix.NewClient(
		hystrix.WithCommandName(name),
		hystrix.WithHTTPClient(transport(s.Base)),
		hystrix.WithHystrixTimeout(attemptTimeout),
		hystrix.WithMaxConcurrentRequests(1000), // the default of 100 rejects calls to a slow server
		hystrix.WithRetrier(heimdall.NewRetrier(heimdall.NewExponentialBackoff(shortest, longest, 2, shortest))),
		hystrix.WithRetryCount(retries))}
}

// Do returns a response when hystrix's client returns none.
func (c *hystrixClient) Do(req *http.Request) (*http.Response, error) {
	resp, err := c.Client.Do(req)
	if resp == nil && err == nil {
		err = errors.New("heimdall: neither a response nor an error")
	}
	return resp, err
}

// Close ends the goroutines of the circuit. The only way is to close their unexported
// channels. hystrix continues for a moment after a call, so Close needs synctest.Wait.
func (c *hystrixClient) Close() error {
	circuit, _, err := breaker.GetCircuit(c.name)
	if err != nil {
		return err
	}
	at := reflect.ValueOf(circuit).Elem()
	for _, path := range [][]string{{"metrics", "Updates"}, {"executorPool", "Metrics", "Updates"}} {
		v := at
		for _, field := range path {
			v = v.FieldByName(field)
			v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem() //nolint:gosec // see above
			if v.Kind() == reflect.Pointer {
				v = v.Elem()
			}
		}
		v.Close()
	}
	return nil
}
