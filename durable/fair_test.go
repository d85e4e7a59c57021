package durable_test

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// provider is a Gateway that may hang.
type provider struct {
	takes   time.Duration                         // 0: 100 ms
	hangs   func(n int, since time.Duration) bool // the n-th call; nil: none does
	workers int                                   // its Concurrency; 0: it has none
	began   time.Time

	mu                    sync.Mutex
	calls, at, most, done int
	last                  time.Time // when the last intent was done
}

// gateway returns the Gateway.
func (p *provider) gateway() durable.Gateway {
	p.began = time.Now()
	if p.workers > 0 {
		return broad{gatewayFunc(p.call), p.workers}
	}
	return gatewayFunc(p.call)
}

// broad is a Gateway with its own number of workers.
type broad struct {
	gatewayFunc

	workers int
}

func (b broad) Concurrency() int { return b.workers }

func (p *provider) call(ctx context.Context, _ *durable.Send) durable.Outcome {
	_, hangs := p.count(1)
	defer p.count(-1)
	if hangs {
		<-ctx.Done()
		return durable.Outcome{Err: ctx.Err()}
	}
	time.Sleep(cmp.Or(p.takes, 100*time.Millisecond))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	p.last = time.Now()
	return durable.Outcome{Class: durable.ClassSucceeded}
}

// count counts a call that begins or ends, and reports which it is, and whether it hangs.
func (p *provider) count(by int) (n int, hangs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls += max(by, 0)
	p.at += by
	p.most = max(p.most, p.at)
	return p.calls, p.hangs != nil && p.hangs(p.calls, time.Since(p.began))
}

// report returns the number of done intents, the time of the last, and the maximum in flight.
func (p *provider) report() (done int, last time.Time, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done, p.last, p.most
}

func always(int, time.Duration) bool { return true }

// D9: a Gateway that hangs occupies only its own workers, and only its part of each tenant's.
func TestHungGateway(t *testing.T) {
	type providers map[string]*provider
	type counts map[string]int
	many := providers{"hung": {hangs: always}, "well": {}}
	for i := range 198 {
		many["idle "+strconv.Itoa(i)] = new(provider)
	}
	for _, row := range []struct {
		name      string
		tenants   int
		providers providers
		intents   counts
		most      counts        // in flight at once
		within    time.Duration // until all intents of the healthy gateway are done
	}{
		{"one of two", 50, providers{"hung": {hangs: always}, "well": {}}, counts{"hung": 1000, "well": 1000}, counts{"hung": 50, "well": 50}, 2500 * time.Millisecond},
		{"one of two, one tenant", 1, providers{"hung": {hangs: always}, "well": {}}, counts{"hung": 1000, "well": 1000}, counts{"hung": 12, "well": 12}, 9 * time.Second},
		{"two of three", 50, providers{"hung": {hangs: always}, "stuck": {hangs: always}, "well": {}},
			counts{"hung": 1000, "stuck": 1000, "well": 1000}, counts{"hung": 33, "stuck": 33, "well": 33}, 3500 * time.Millisecond},
		{"two of three, one tenant", 1, providers{"hung": {hangs: always}, "stuck": {hangs: always}, "well": {}},
			counts{"hung": 1000, "stuck": 1000, "well": 1000}, counts{"hung": 8, "stuck": 8, "well": 8}, 14 * time.Second},
		{"its own number of workers", 50, providers{"hung": {hangs: always, workers: 5}, "well": {workers: 80}},
			counts{"hung": 1000, "well": 1000}, counts{"hung": 5, "well": 80}, 1500 * time.Millisecond},
		{"one of 200", 50, many, counts{"hung": 1000, "well": 100}, counts{"hung": 1, "well": 1}, 11 * time.Second},
		{"none hangs: what another leaves idle is not used", 50, providers{"well": {}, "idle": {}}, counts{"well": 2500}, counts{"well": 50}, 5500 * time.Millisecond},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			e := &durable.Engine{Store: new(durable.Memory), Gateways: make(map[string]durable.Gateway), KeyTTL: -1}
			for name, p := range row.providers {
				e.Gateways[name] = p.gateway()
			}
			for _, name := range slices.Sorted(maps.Keys(row.intents)) {
				for i := range row.intents[name] {
					in := pay("tenant "+strconv.Itoa(i%row.tenants), name+strconv.Itoa(i))
					in.Gateway = name
					enqueue(t, e, in)
				}
			}
			began := time.Now()
			running(t, e)
			time.Sleep(row.within)
			synctest.Wait()
			done, last, _ := row.providers["well"].report()
			assert.Equal(t, row.intents["well"], done)
			assert.LessOrEqual(t, last.Sub(began), row.within)
			assert.GreaterOrEqual(t, 2*last.Sub(began), row.within, "the test is not strict any more")
			for name, want := range row.most {
				_, _, most := row.providers[name].report()
				assert.Equal(t, want, most, name)
			}
		})
	}
}

// In Work too, a Gateway that hangs does not use the workers of others.
func TestHungGatewayWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, well := &provider{hangs: always}, new(provider)
		e := &durable.Engine{
			Store: new(durable.Memory), Timeout: time.Minute, Concurrency: 8, PerTenant: 8,
			Gateways: map[string]durable.Gateway{"hung": hung.gateway(), "well": well.gateway()},
		}
		for i := range 100 {
			for name := range e.Gateways {
				in := pay("comp1", name+strconv.Itoa(i))
				in.Gateway = name
				enqueue(t, e, in)
			}
		}
		began := time.Now()
		assert.Equal(t, 104, work(t, e, 104))
		done, last, _ := well.report()
		assert.Equal(t, 100, done)
		assert.Less(t, last.Sub(began), 4*time.Second)
		_, _, most := hung.report()
		assert.Equal(t, 4, most)
	})
}

// TestBuriedLeaveTheirPlace: intents of an unknown gateway are buried. For any number of them, the
// intents after them in the tenant are sent at once, with a share of one worker.
func TestBuriedLeaveTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		well := new(provider)
		e := &durable.Engine{Store: new(durable.Memory), PerTenant: 1, Gateways: map[string]durable.Gateway{"well": well.gateway()}}
		former := &durable.Engine{Store: e.Store, Gateways: map[string]durable.Gateway{"gone": new(provider).gateway()}}
		for i := range 300 {
			in := pay("comp1", "gone"+strconv.Itoa(i))
			in.Gateway = "gone"
			enqueue(t, former, in)
		}
		time.Sleep(time.Second)
		in := pay("comp1", "well")
		in.Gateway = "well"
		enqueue(t, e, in)
		began := time.Now()
		running(t, e)
		time.Sleep(10 * time.Second)
		done, last, _ := well.report()
		assert.Equal(t, 1, done)
		assert.Less(t, last.Sub(began), time.Second)
	})
}

// A PerTenant above Concurrency is no limit.
func TestPerTenant_great(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(provider)
		e := through(p.gateway())
		e.PerTenant = math.MaxInt
		enqueue(t, e, several("comp1", 200)...)
		running(t, e)
		time.Sleep(10 * time.Second)
		_, _, most := p.report()
		assert.Equal(t, 100, most)
	})
}
