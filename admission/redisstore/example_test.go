package redisstore_test

import (
	"fmt"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/admission/redisstore"
)

// All processes of a service share one quota of 100 requests per minute for each client.
func Example() {
	client := redis.NewClient(&redis.Options{
		Addr:                  "redis:6379",
		ContextTimeoutEnabled: true, // the context's deadline ends a command
		MaxRetries:            -1,   // a retried Take may be counted twice
		DialerRetries:         1,    // do not wait for a server that is down
		MinIdleConns:          4,    // connect before a request needs it
	})
	defer func() { _ = client.Close() }()
	quota := &admission.Quota{Limit: 100, Store: &redisstore.Store{Client: client}}
	handler := quota.Handler(http.NotFoundHandler())
	fmt.Println(handler != nil, quota.Validate())
	// Output: true <nil>
}
