package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/tcpproxy"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// wireFault is what happens to connections: from the clients to the services, and
// from them to PostgreSQL.
type wireFault struct{}

func (wireFault) Name() string      { return "wire" }
func (wireFault) Befalls() []string { return []string{SQLite, Postgres} }

// Strike ends connections on all wires, at random, each when it has lost for a moment
// what was said on it: all, or only answers, so that what was asked is done, a commit
// for one, and nobody learns of it. Then it does one of the longer harms to one of the
// wires, in turn.
func (wireFault) Strike(ctx context.Context, at *Site, random *rand.Rand) error {
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
	turn := int(at.nextHarm.Add(1))
	harms[turn/len(wires)%len(harms)](at, ctx, wires[turn%len(wires)], random)
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
var harms = []func(*Site, context.Context, *tcpproxy.Proxy, *rand.Rand){
	(*Site).haltSome, (*Site).slowDown, (*Site).haltAll, (*Site).haltAndReset,
}

// haltSome holds back what some connections carry for longer than a lease, and then
// delivers it.
func (at *Site) haltSome(ctx context.Context, wire *tcpproxy.Proxy, random *rand.Rand) {
	halted := some(wire, random, 0.5, (*tcpproxy.Conn).Halt)
	_ = sleep.Context(ctx, at.longerThanALease(random))
	for _, c := range halted {
		c.Resume()
	}
}

// haltAndReset never delivers it.
func (at *Site) haltAndReset(ctx context.Context, wire *tcpproxy.Proxy, random *rand.Rand) {
	halted := some(wire, random, 0.5, (*tcpproxy.Conn).Halt)
	_ = sleep.Context(ctx, at.longerThanALease(random))
	for _, c := range halted {
		c.Reset()
	}
}

// haltAll is a network that is gone for longer than a lease.
func (at *Site) haltAll(ctx context.Context, wire *tcpproxy.Proxy, random *rand.Rand) {
	wire.Halt()
	_ = sleep.Context(ctx, at.longerThanALease(random))
	wire.Resume()
}

// slowDown is a network that takes its time.
func (at *Site) slowDown(ctx context.Context, wire *tcpproxy.Proxy, random *rand.Rand) {
	wire.Delay(20*time.Millisecond + upTo(random, 80*time.Millisecond))
	_ = sleep.Context(ctx, at.Lease)
	wire.Delay(0)
}

func (at *Site) longerThanALease(random *rand.Rand) time.Duration {
	return at.Lease + upTo(random, at.Lease)
}
