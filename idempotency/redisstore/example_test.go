package redisstore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/redisstore"
)

func Example() {
	server, err := miniredis.Run() // in a service: a Redis server
	if err != nil {
		log.Panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr(), ContextTimeoutEnabled: true, PoolTimeout: time.Second, MaxRetries: -1,
	})
	defer func() { _ = client.Close() }()
	store := redisstore.New(client, nil)

	for range 2 { // the second is a retry
		charged, err := idempotency.DoJSON(context.Background(), store, "tenant_1", "charge", "invoice_1", "v1:4200",
			func(context.Context) (string, error) {
				fmt.Println("charging")
				return "charged 4200", nil
			})
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(charged)
	}
	// Output:
	// charging
	// charged 4200
	// charged 4200
}
