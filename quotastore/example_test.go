package quotastore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/quotastore"
)

// Two units per minute for each key. The third Take is rejected.
func ExampleMemory() {
	var store quotastore.Memory
	rule := quotastore.Rule{Limit: 2, Window: time.Minute}
	for range 3 {
		result, err := store.Take(context.Background(), "tenant-1", 1, 1, rule)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(result.OK, result.Remaining, result.RetryAfter.Round(time.Second))
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 30s
}
