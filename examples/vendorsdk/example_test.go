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

// The API is overloaded for a moment and then declines a card. The caller sees
// the second only, as a value that programs can look at.
func ExampleClient_CreateCharge() {
	api := faulttest.New(nil, faulttest.Sequence(
		faulttest.Status(http.StatusServiceUnavailable),
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
	notBefore, again := vendorsdk.AskAgain(err)
	switch {
	case errors.Is(err, vendorsdk.ErrDeclined):
		fmt.Println("ask for another card:", err)
	case again:
		fmt.Println("put back into the queue until", notBefore)
	case err != nil:
		fmt.Println("a mistake of ours:", err)
	default:
		fmt.Println("paid:", charge.ID)
	}
	fmt.Println("requests:", api.Total())
	// Output:
	// ask for another card: vendorsdk: 402 Card declined (insufficient_funds), request req_42
	// requests: 2
}
