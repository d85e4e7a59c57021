package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/redisstore"
	"github.com/resilienthttp/resilienthttp/idempotency/storetest"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/redistest"
)

// connect returns a client with the options of the package's documentation and long timeouts.
func connect(tb testing.TB, server *redistest.Server) *redis.Client {
	tb.Helper()
	client := redis.NewClient(&redis.Options{
		Network: "unix", Addr: server.Socket(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute,
	})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// The store passes the suite, with two clients.
func TestStore(t *testing.T) {
	server := redistest.StartTB(t)
	open := func(t *testing.T) driver.Store { return redisstore.New(connect(t, server), nil) }
	storetest.Suite{Open: open, Again: open}.Run(t)
}
