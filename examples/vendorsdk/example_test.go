package vendorsdk_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/examples/vendorsdk"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// The API is overloaded, and then declines a card. The Transport retries the first response. The
// caller gets the second one as a typed error.
func ExampleClient_CreateCharge() {
	api := faulttest.New(nil, faulttest.Sequence(
		faulttest.Status(http.StatusTooManyRequests),
		faulttest.Reply{
			Status: http.StatusPaymentRequired,
			Header: http.Header{"Request-Id": {"req_42"}},
			Body:   `{"title":"Card declined","code":"insufficient_funds"}`,
		},
	))
	defer api.Close()

	client := &vendorsdk.Client{BaseURL: api.URL, APIKey: "sk_test"}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	charge, err := client.CreateCharge(ctx, vendorsdk.ChargeParams{
		Reference: "invoice-1", Amount: 1999, Currency: "EUR", Source: "tok_visa",
		IdempotencyKey: "comp1:invoice:001",
	})
	notBefore, again := vendorsdk.CallAgain(err)
	switch {
	case errors.Is(err, vendorsdk.ErrDeclined):
		fmt.Println("another card is needed:", err)
	case again:
		fmt.Println("call again at", notBefore)
	case err != nil:
		fmt.Println("error:", err)
	default:
		fmt.Println("paid:", charge.ID)
	}
	fmt.Println("requests:", api.Total())
	// Output:
	// another card is needed: vendorsdk: 402 Card declined (insufficient_funds), request req_42
	// requests: 2
}
