package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/tcpproxy"
)

// wireFault is what happens to connections: from the clients to the services, and
// from them to PostgreSQL.
type wireFault struct{}

func (wireFault) name() string      { return "wire" }
func (wireFault) befalls() []string { return []string{sqlite, postgres} }

// strike ends connections on all wires, at random, each when it has lost for a moment
// what was said on it: all, or only answers, so that what was asked is done, a commit
// for one, and nobody learns of it. Then it does one of the longer harms to one of the
// wires, in turn.
func (wireFault) strike(ctx context.Context, at *site, random *rand.Rand) error {
	wires := []*tcpproxy.Proxy{at.front}
	if at.back != nil {
		wires = append(wires, at.back)
	}
	for range 6 {
		var lost []*tcpproxy.Conn
		for _, wire := range wires {
			lost = append(lost, some(wire, random, 0.15, (*tcpproxy.Conn).Mute)...)
			lost = append(lost, some(wire, random, 0.15, (*tcpproxy.Conn).Halt)...)
		}
		rest(ctx, upTo(random, 20*time.Millisecond))
		for _, c := range lost {
			if random.IntN(2) == 0 {
				c.Reset()
			} else {
				c.Cut()
			}
		}
	}
	turn := int(at.nextHarm.Add(1))
	harms[turn/len(wires)%len(harms)](ctx, wires[turn%len(wires)], random)
	return nil
}

// some picks a share of a wire's connections.
func some(wire *tcpproxy.Proxy, random *rand.Rand, share float64, do func(*tcpproxy.Conn)) (picked []*tcpproxy.Conn) {
	for _, c := range wire.Conns() {
		if random.Float64() < share {
			do(c)
			picked = append(picked, c)
		}
	}
	return picked
}

// harms are those that last.
var harms = []func(context.Context, *tcpproxy.Proxy, *rand.Rand){haltSome, slowDown, haltAll, haltAndReset}

// haltSome holds back what some connections carry for longer than a lease, and then
// delivers it.
func haltSome(ctx context.Context, wire *tcpproxy.Proxy, random *rand.Rand) {
	halted := some(wire, random, 0.5, (*tcpproxy.Conn).Halt)
	rest(ctx, longerThanALease(random))
	for _, c := range halted {
		c.Resume()
	}
}

// haltAndReset never delivers it.
func haltAndReset(ctx context.Context, wire *tcpproxy.Proxy, random *rand.Rand) {
	halted := some(wire, random, 0.5, (*tcpproxy.Conn).Halt)
	rest(ctx, longerThanALease(random))
	for _, c := range halted {
		c.Reset()
	}
}

// haltAll is a network that is gone for longer than a lease.
func haltAll(ctx context.Context, wire *tcpproxy.Proxy, random *rand.Rand) {
	wire.Halt()
	rest(ctx, longerThanALease(random))
	wire.Resume()
}

// slowDown is a network that takes its time.
func slowDown(ctx context.Context, wire *tcpproxy.Proxy, random *rand.Rand) {
	wire.Delay(20*time.Millisecond + upTo(random, 80*time.Millisecond))
	rest(ctx, leaseOfCharge)
	wire.Delay(0)
}

func longerThanALease(random *rand.Rand) time.Duration {
	return leaseOfCharge + upTo(random, leaseOfCharge)
}
