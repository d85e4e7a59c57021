package resilienthttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// The fixed limit of one request a minute rejects the second call. The error has the time for
// another call.
func ExampleError_notBefore() {
	api := faulttest.New(nil, faulttest.OK(""))
	defer api.Close()

	limit := &resilienthttp.RateLimit{Limit: 1. / 60, MaxWait: time.Second}
	client := &http.Client{Transport: &resilienthttp.Transport{RateLimit: limit}}
	for range 2 {
		resp, err := client.Get(api.URL)
		if failed, ok := errors.AsType[*resilienthttp.Error](err); ok && !failed.NotBefore.IsZero() {
			fmt.Println("rejected:", failed.Reason, "not sent:", failed.NotSent())
		}
		if err == nil {
			_ = resp.Body.Close()
			fmt.Println(resp.StatusCode)
		}
	}
	// Output:
	// 200
	// rejected: rate limited not sent: true
}
