package driver_test

import (
	"context"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// A store grants the first claim of an operation, and returns the result of the first
// execution to later claims.
func ExampleStore() {
	ctx := context.Background()
	var store driver.Store = new(driver.Memory)
	claim := func() driver.Claim {
		return driver.Claim{
			ID:    driver.ID{Scope: "acme", Operation: "charge", Key: "invoice:1"},
			Owner: driver.NewOwner(), Lease: 30 * time.Second, TTL: 24 * time.Hour,
		}
	}
	first, err := store.Reserve(ctx, claim())
	fmt.Println(first.Decision, err)
	duplicate, err := store.Reserve(ctx, claim())
	fmt.Println(duplicate.Decision, err)

	err = store.Complete(ctx, first.Record.Lease(), driver.Outcome{
		Status: driver.Completed, Result: driver.Result{Body: []byte("charge 1")},
	})
	fmt.Println(err)
	later, err := store.Reserve(ctx, claim())
	fmt.Printf("%v %s %v\n", later.Decision, later.Record.Result.Body, err)
	// Output:
	// acquired <nil>
	// in_progress <nil>
	// <nil>
	// done charge 1 <nil>
}
