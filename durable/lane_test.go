package durable_test

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/driver"
)

// provider is a Gateway that may hang.
type provider struct {
	takes time.Duration                         // 0: 100 ms
	hangs func(n int, since time.Duration) bool // the n-th call; nil: none does
	asks  bool                                  // what is sent is unknown, and it is Find that may hang
	slow  bool                                  // some take up to ten seconds longer
	fails bool                                  // nobody ever knows what became of it
	began time.Time

	mu                    sync.Mutex
	calls, at, most, done int
	last                  time.Time // that was done
}

// gateway is it.
func (p *provider) gateway() durable.Gateway {
	p.began = time.Now()
	if !p.asks {
		return gatewayFunc(p.call)
	}
	unknown := func(context.Context, *durable.Send) durable.Outcome { return durable.Outcome{} }
	return finderFunc{unknown, p.call}
}

func (p *provider) call(ctx context.Context, _ *durable.Send) durable.Outcome {
	n, hangs := p.count(1)
	defer p.count(-1)
	if hangs {
		<-ctx.Done()
		return durable.Outcome{Err: ctx.Err()}
	}
	if p.slow {
		time.Sleep(time.Duration(7*n%100) * 100 * time.Millisecond)
	}
	time.Sleep(cmp.Or(p.takes, 100*time.Millisecond))
	if p.fails {
		return durable.Outcome{}
	}
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

// report is how many it has done, when the last, and how many were at work at once.
func (p *provider) report() (done int, last time.Time, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done, p.last, p.most
}

func always(int, time.Duration) bool { return true }

// A Gateway that hangs does not stop the others: it holds no more senders than its share,
// of the Engine's and of each tenant's, and none of what is kept for them.
func TestHungGateway(t *testing.T) {
	for _, row := range []struct {
		name      string
		tenants   int
		providers map[string]*provider
		intents   map[string]int
		later     time.Duration  // all but the first ten of each are due so much later
		most      map[string]int // at work at once
		within    time.Duration  // all that is well is done
	}{
		{
			name: "one of two", tenants: 50,
			providers: map[string]*provider{"hung": {hangs: always}, "well": {}},
			intents:   map[string]int{"hung": 1000, "well": 1000},
			most:      map[string]int{"hung": 50}, within: 2500 * time.Millisecond,
		},
		{
			name: "one of two, one tenant", tenants: 1,
			providers: map[string]*provider{"hung": {hangs: always}, "well": {}},
			intents:   map[string]int{"hung": 1000, "well": 1000},
			most:      map[string]int{"hung": 12}, within: 9 * time.Second,
		},
		{
			name: "two of three", tenants: 50,
			providers: map[string]*provider{"hung": {hangs: always}, "stuck": {hangs: always}, "well": {}},
			intents:   map[string]int{"hung": 1000, "stuck": 1000, "well": 1000},
			most:      map[string]int{"hung": 33, "stuck": 33}, within: 3500 * time.Millisecond,
		},
		{
			name: "two of three, one tenant", tenants: 1,
			providers: map[string]*provider{"hung": {hangs: always}, "stuck": {hangs: always}, "well": {}},
			intents:   map[string]int{"hung": 1000, "stuck": 1000, "well": 1000},
			most:      map[string]int{"hung": 8, "stuck": 8}, within: 14 * time.Second,
		},
		{
			name: "one of 200", tenants: 50,
			providers: func() map[string]*provider {
				all := map[string]*provider{"hung": {hangs: always}, "well": {}}
				for i := range 198 {
					all["idle "+strconv.Itoa(i)] = new(provider)
				}
				return all
			}(),
			intents: map[string]int{"hung": 1000, "well": 1000},
			most:    map[string]int{"hung": 1}, within: 2 * time.Second,
		},
		{
			name: "its questions", tenants: 50,
			providers: map[string]*provider{"hung": {hangs: always, asks: true}, "well": {}},
			intents:   map[string]int{"hung": 1000, "well": 2000},
			most:      map[string]int{"hung": 50}, within: 5 * time.Second,
		},
		{
			name: "a tenth of its sends", tenants: 50,
			providers: map[string]*provider{"hung": {hangs: func(n int, _ time.Duration) bool { return n%10 == 0 }}, "well": {}},
			intents:   map[string]int{"hung": 6000, "well": 3000},
			within:    11 * time.Second,
		},
		{
			name: "suddenly", tenants: 50, // at 100 a second and an even load, with much behind it
			providers: map[string]*provider{"hung": {hangs: func(_ int, since time.Duration) bool { return since > time.Second }}, "well": {}},
			intents:   map[string]int{"hung": 3000, "well": 1000},
			within:    8 * time.Second,
		},
		{
			name: "suddenly, with all senders", tenants: 50,
			providers: map[string]*provider{
				"hung": {hangs: func(_ int, since time.Duration) bool { return since > time.Second }},
				"well": {}, "stuck": {hangs: always},
			},
			intents: map[string]int{"hung": 3000, "well": 1000, "stuck": 1000},
			within:  13 * time.Second,
		},
		{
			name: "none", tenants: 50, // its throughput is that of 88 senders, after one turn of 50
			providers: map[string]*provider{"well": {}, "idle": {}},
			intents:   map[string]int{"well": 2640},
			most:      map[string]int{"well": 88}, within: 3600 * time.Millisecond,
		},
		{
			name: "none, and slow", tenants: 50, // it answers in 15 s on average
			providers: map[string]*provider{"well": {takes: 10 * time.Second, slow: true}, "idle": {}},
			intents:   map[string]int{"well": 880},
			most:      map[string]int{"well": 88}, within: 185 * time.Second,
		},
		{
			name: "after a pause", tenants: 50,
			providers: map[string]*provider{"hung": {hangs: func(_ int, since time.Duration) bool { return since > time.Second }}, "well": {}},
			intents:   map[string]int{"hung": 1000, "well": 1000},
			later:     10 * time.Second,
			most:      map[string]int{"hung": 50}, within: 13500 * time.Millisecond,
		},
		{
			name: "it gives up by itself", tenants: 50,
			providers: map[string]*provider{"hung": {takes: 3 * time.Second, fails: true}, "well": {}},
			intents:   map[string]int{"hung": 1000, "well": 2000},
			most:      map[string]int{"hung": 50}, within: 5 * time.Second,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &durable.Engine{Store: new(durable.Memory), Gateways: make(map[string]durable.Gateway), KeyTTL: -1}
				for name, p := range row.providers {
					e.Gateways[name] = p.gateway()
				}
				for _, name := range slices.Sorted(maps.Keys(row.intents)) {
					for i := range row.intents[name] {
						in := pay("tenant "+strconv.Itoa(i%row.tenants), name+strconv.Itoa(i))
						in.Gateway = name
						if i >= 10 && row.later > 0 {
							in.NotBefore = time.Now().Add(row.later)
						}
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
		})
	}
}

// Work, too, leaves senders to those that answer.
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
		n, err := e.Work(t.Context(), 104)
		require.NoError(t, err)
		assert.Equal(t, 104, n)
		done, last, _ := well.report()
		assert.Equal(t, 100, done)
		assert.Less(t, last.Sub(began), 4*time.Second)
		_, _, most := hung.report()
		assert.Equal(t, 4, most)
	})
}

// TestBuriedLeaveTheirPlace: what is of no Gateway of the Engine is buried, and however much
// that is, what is behind it in its tenant is sent at once, through a share of one.
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
		ctx, stop := context.WithCancel(t.Context())
		var over sync.WaitGroup
		over.Go(func() { assert.NoError(t, e.Run(ctx)) })
		time.Sleep(10 * time.Second)
		stop()
		over.Wait()
		done, last, _ := well.report()
		assert.Equal(t, 1, done)
		assert.Less(t, last.Sub(began), time.Second)
	})
}

// What is kept for a gateway it always gets, whatever the others have taken and given back,
// all of which answer.
func TestKept(t *testing.T) {
	for range 500 {
		senders, gateways := 4+rand.N(60), 2+rand.N(6)
		quarter := senders / 4
		part := max(quarter/gateways, 1)
		c := driver.Claim{Limit: senders, MaxWorkers: senders, PerScope: senders, GatewayLimits: map[string]int{}, InFlight: map[driver.QueueKey]int{}}
		for i := range gateways {
			c.GatewayLimits[strconv.Itoa(i)] = senders
		}
		total := 0
		for range 200 {
			lane := driver.QueueKey{Gateway: strconv.Itoa(rand.N(gateways))}
			if n := c.InFlight[lane]; n > 0 && rand.N(3) == 0 {
				c.InFlight[lane]--
				total--
			} else if room := c.Capacity().Queue(lane); room > 0 {
				n := 1 + rand.N(room)
				c.InFlight[lane] += n
				total += n
			} else {
				require.False(t, n < part && gateways*part <= quarter || n == 0 && total < senders,
					"%v of %d leave nothing to %v", c.InFlight, senders, lane)
			}
			require.LessOrEqual(t, total, senders)
			require.LessOrEqual(t, c.InFlight[lane], max(senders-min((gateways-1)*part, quarter), part), "%v of %d", c.InFlight, senders)
		}
	}
}
