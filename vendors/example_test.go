package vendors_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/vendors"
)

// A lock timeout of Stripe is retried, although its status is 400. The retry has the same key.
func ExampleStripe() {
	api := faulttest.New(nil, faulttest.Sequence(
		faulttest.Reply{Status: http.StatusBadRequest, Body: `{"error":{"code":"lock_timeout"}}`},
		faulttest.OK(`{"id":"ch_1"}`),
	))
	defer api.Close()

	mock := strings.TrimPrefix(api.URL, "http://")
	client := &http.Client{Transport: vendors.Stripe(mock)}
	resp, err := client.Post(api.URL+"/v1/charges", "application/x-www-form-urlencoded", strings.NewReader("amount=100"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	sent := api.Requests()
	fmt.Println(resp.StatusCode, len(sent), sent[0].Key == sent[1].Key)
	// Output: 200 2 true
}
