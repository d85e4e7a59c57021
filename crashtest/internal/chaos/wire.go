package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/tcpproxy"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// breakWires breaks connections between clients and services, and between services and PostgreSQL.
// It drops the data of random connections and then closes them. It drops all data, or only the
// responses: then a request is executed, such as a commit, and the client gets no response. After
// that it injects one of the longer faults into one of the proxies, in turn.
func breakWires(ctx context.Context, at *Stack, random *rand.Rand) error {
	wires := []*tcpproxy.Proxy{at.Front}
	if at.back != nil {
		wires = append(wires, at.back)
	}
	for range 6 {
		var lost []*tcpproxy.Conn
		for _, wire := range wires {
			lost = append(lost, some(wire, random, 0.15, (*tcpproxy.Conn).Mute)...)
			lost = append(lost, some(wire, random, 0.15, (*tcpproxy.Conn).Halt)...)
		}
		_ = sleep.Context(ctx, upTo(random, 20*time.Millisecond))
		for _, c := range lost {
			if random.IntN(2) == 0 {
				c.Reset()
			} else {
				c.Cut()
			}
		}
	}
	n := int(at.nextWireFault.Add(1))
	longFaults[n/len(wires)%len(longFaults)](at, ctx, wires[n%len(wires)], random)
	return nil
}

// some calls do for a random part of the connections, and returns them.
func some(wire *tcpproxy.Proxy, random *rand.Rand, ratio float64, do func(*tcpproxy.Conn)) (picked []*tcpproxy.Conn) {
	for _, c := range wire.Conns() {
		if random.Float64() < ratio {
			do(c)
			picked = append(picked, c)
		}
	}
	return picked
}

// longFaults are the faults that take longer.
var longFaults = []func(*Stack, context.Context, *tcpproxy.Proxy, *rand.Rand){
	haltSome((*tcpproxy.Conn).Resume), (*Stack).slowDown, (*Stack).haltAll, haltSome((*tcpproxy.Conn).Reset),
}

// haltSome delays the data of some connections for longer than a lease, and then delivers it or resets them.
func haltSome(end func(*tcpproxy.Conn)) func(*Stack, context.Context, *tcpproxy.Proxy, *rand.Rand) {
	return func(at *Stack, ctx context.Context, wire *tcpproxy.Proxy, random *rand.Rand) {
		halted := some(wire, random, 0.5, (*tcpproxy.Conn).Halt)
		_ = sleep.Context(ctx, at.longerThanALease(random))
		for _, c := range halted {
			end(c)
		}
	}
}

// haltAll stops the network for longer than a lease.
func (at *Stack) haltAll(ctx context.Context, wire *tcpproxy.Proxy, random *rand.Rand) {
	wire.Halt()
	_ = sleep.Context(ctx, at.longerThanALease(random))
	wire.Resume()
}

// slowDown makes the network slow.
func (at *Stack) slowDown(ctx context.Context, wire *tcpproxy.Proxy, random *rand.Rand) {
	wire.Delay(20*time.Millisecond + upTo(random, 80*time.Millisecond))
	_ = sleep.Context(ctx, at.Lease)
	wire.Delay(0)
}

func (at *Stack) longerThanALease(random *rand.Rand) time.Duration {
	return at.Lease + upTo(random, at.Lease)
}
