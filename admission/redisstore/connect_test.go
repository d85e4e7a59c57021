package redisstore_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/admission/redisstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/redistest"
)

// A12: the time that go-redis needs to connect rejects no request. TestQuota_storeConnects of package admission shows in virtual
// time that no fallback begins.
func TestConnecting(t *testing.T) {
	t.Parallel()
	server := redistest.StartTB(t)
	for name, failClosed := range map[string]bool{"local": false, "fail closed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(server)
			o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
				wait(250 * time.Millisecond)
				return new(net.Dialer).DialContext(ctx, network, address)
			}
			client := redis.NewClient(o)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			q := &admission.Quota{
				Name: name, Limit: 1000, Window: time.Hour, FailClosed: failClosed,
				Store: &redisstore.Store{Client: client, Prefix: name},
			}
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					for range 5 {
						result, err := q.Take(t.Context(), "k", 1)
						assert.NoError(t, err)
						assert.True(t, result.OK)
					}
				})
			}
			all.Wait()
			// The store decides soon, also on a machine that is too busy to answer in time at first.
			require.Eventually(t, func() bool {
				before := client.Get(t.Context(), name+name+":k").Val() // "" before the first answer
				_, err := q.Take(t.Context(), "k", 1)
				return err == nil && client.Get(t.Context(), name+name+":k").Val() != before
			}, 30*time.Second, time.Millisecond)
		})
	}
}
