package resilienthttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
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

// The response of the first attempt is lost after the charge was made. The retry is declined by a
// check that does not know the key. So the 402 does not say that nothing was charged.
func ExampleInDoubt() {
	charges := &faulttest.Idempotent{}
	api := faulttest.New(nil, faulttest.Sequence(faulttest.LoseResponse(charges), faulttest.Status(http.StatusPaymentRequired)))
	defer api.Close()

	resp, err := resilienthttp.NewClient().Post(api.URL, "application/json", strings.NewReader(`{"amount":100}`))
	if err == nil {
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	if resilienthttp.InDoubt(resp, err) {
		fmt.Println("repeat it with the same key")
	}
	// Output:
	// 402
	// repeat it with the same key
}
