package durable_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
)

// gatewayFunc is a Gateway.
type gatewayFunc func(ctx context.Context, s *durable.Send) durable.Outcome

func (f gatewayFunc) Send(ctx context.Context, s *durable.Send) durable.Outcome { return f(ctx, s) }

func pay(scope, key string) durable.Intent {
	in := durable.Intent{ID: id, Gateway: "psp", Payload: []byte("pay")}
	in.Scope, in.Key = scope, key
	return in
}

// running runs the engine for the length of a test.
func running(t *testing.T, e *durable.Engine) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		e := &durable.Engine{Store: new(durable.Memory), Gateways: map[string]durable.Gateway{
			"psp": gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
				keys = append(keys, s.Key)
				switch s.Number {
				case 1:
					return durable.Outcome{}
				case 2:
					return durable.Outcome{Class: durable.ClassFailed, NotBefore: time.Now().Add(time.Hour)}
				case 3:
					panic("gateway")
				case 4:
					runtime.Goexit()
				}
				return durable.Outcome{Class: durable.ClassSucceeded, Reference: "ch_1"}
			}),
		}}
		in := pay("comp1", "1")
		receipt, err := e.Enqueue(t.Context(), in)
		require.NoError(t, err)
		assert.Equal(t, durable.StatePending, receipt.State)
		running(t, e)
		began := time.Now()
		time.Sleep(3 * time.Hour)
		record, err := e.Find(t.Context(), in.ID)
		require.NoError(t, err)
		assert.Equal(t, durable.StateDone, record.State)
		assert.Equal(t, "ch_1", record.Reference)
		assert.Equal(t, 5, record.Attempts)
		assert.GreaterOrEqual(t, record.Updated.Sub(began), time.Hour)
		k := durable.SendKey(in.ID, 1)
		assert.Equal(t, []string{k, k, k, k, k}, keys)
	})
}

// D10: Run returns nil within Drain and a second, and what is not over is unknown,
// also where a Gateway does not listen.
func TestDrain(t *testing.T) {
	for name, deaf := range map[string]bool{"a Gateway that listens": false, "one that does not": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				e := &durable.Engine{Store: new(durable.Memory), Drain: 10 * time.Second, Gateways: map[string]durable.Gateway{
					"psp": gatewayFunc(func(ctx context.Context, _ *durable.Send) durable.Outcome {
						if deaf {
							<-release
						}
						<-ctx.Done()
						return durable.Outcome{Err: ctx.Err()}
					}),
				}}
				in := pay("comp1", "1")
				_, err := e.Enqueue(t.Context(), in)
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				require.NoError(t, e.Run(ctx))
				assert.LessOrEqual(t, time.Since(began), time.Minute+11*time.Second)
				assert.GreaterOrEqual(t, time.Since(began), time.Minute+10*time.Second)
				record, err := e.Find(t.Context(), in.ID)
				require.NoError(t, err)
				assert.Equal(t, durable.StateUnknown, record.State)
				attempts, err := e.Attempts(t.Context(), in.ID)
				require.NoError(t, err)
				assert.Len(t, attempts, 1)
				assert.False(t, attempts[0].FinishedAt.IsZero())
				close(release)
			})
		})
	}
}
