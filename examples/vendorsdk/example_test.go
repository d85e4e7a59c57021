package vendorsdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/examples/vendorsdk"
)

// The API is overloaded for a moment and then declines a card. The caller sees
// the second only, as a value that programs can look at.
func ExampleClient_CreateCharge() {
	var requests atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Request-Id", "req_42")
		w.WriteHeader(http.StatusPaymentRequired)
		_, _ = io.WriteString(w, `{"title":"Card declined","code":"insufficient_funds"}`)
	}))
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
	fmt.Println("requests:", requests.Load())
	// Output:
	// ask for another card: vendorsdk: 402 Card declined (insufficient_funds), request req_42
	// requests: 2
}
