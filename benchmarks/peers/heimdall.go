package peers

import (
	"time"

	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
)

// heimdalls has no full client: the circuits of hystrix-go are global variables with endless goroutines.
func heimdalls() []Peer {
	return []Peer{{Name: "heimdall", Note: "the example of its README: 5 attempts, 2 ms to 9 ms apart", New: func(s Setting) Client {
		return httpclient.NewClient(
			httpclient.WithHTTPClient(transport(s.Base)),
			httpclient.WithRetrier(heimdall.NewRetrier(heimdall.NewExponentialBackoff(2*time.Millisecond, 9*time.Millisecond, 2, 2*time.Millisecond))),
			httpclient.WithRetryCount(4))
	}}}
}
