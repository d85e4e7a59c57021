// Gateway is an API with a deadline, load shedding, quotas and idempotency. Its clients show three
// faults: a slow dependency, a noisy tenant, and clients that claim to be critical.
//
// Run it from the root of the repository. It needs only Go, and takes ten seconds:
//
//	go run ./examples/gateway
//	go run ./examples/gateway -overload 6 -length 5m -page 127.0.0.1:8080
//
// The API charges cards at a bank, 10 at a time of 25 ms each. A request passes
//
//	auth → Deadline → Shedder → Quota → idempotency → handler
//
// The shop is the API's own tier: 10 % of its calls are critical, 60 % default, 30 % batch. The
// partner and the scraper have the free plan, 20 charges per second. The partner follows the quota,
// because it has a Transport. The scraper sends five times as much. Bulk is a tenant with a large plan.
// Scraper and bulk send X-Request-Priority: critical, and the API ignores it.
//
// There are three phases:
//
//   - half load: nothing is rejected with 503. The scraper gets 429.
//   - slow dependency: the bank takes three times as long. Critical calls are served, batch is
//     rejected. On the page, the Shedder's BaselineLatency and Queued rise.
//   - noisy tenant: bulk sends three times the capacity. The shop and the partner are served, bulk
//     gets the rest. On the page, Rejected rises fast, and BaselineLatency does not.
//
// If a client is charged twice, or a client that follows its quota gets a 429, the program exits with
// status 1.
//
// gateway.go is the server, fleet.go the clients, charges.go the handler, counters.go the output.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/examples/internal/process"
)

func main() {
	p := program{out: os.Stdout, workers: 10, service: 25 * time.Millisecond}
	flag.DurationVar(&p.length, "length", 10*time.Second, "length of all phases")
	flag.Float64Var(&p.overload, "overload", 3, "load of the noisy tenant, as a multiple of the capacity")
	flag.StringVar(&p.page, "page", "", "address of the state page, for example 127.0.0.1:8080")
	flag.Parse()
	if p.length <= 0 || p.overload <= 0 || p.overload > 100 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	result, err := p.run(ctx)
	stop()
	if err == nil {
		result.print(p.out, p.capacity())
		err = result.verdict()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

type program struct {
	out      io.Writer
	workers  int // of the API
	service  time.Duration
	length   time.Duration
	overload float64
	page     string
}

// capacity is the number of charges that the API can make in a second.
func (p program) capacity() float64 { return float64(p.workers) / p.service.Seconds() }

// phase is a part of the run. The loads are multiples of the capacity.
type phase struct {
	name       string
	shop, bulk float64
	slower     int64
}

func (p program) phases() []phase {
	return []phase{
		{name: "half load", shop: 0.5},
		{name: "slow dependency", shop: 0.75, slower: 3},
		{name: "noisy tenant", shop: 0.5, bulk: p.overload},
	}
}

// run runs all phases, or until ctx ends.
func (p program) run(ctx context.Context) (*result, error) {
	charges := newCharges(p.workers, p.service)
	gate, err := newGateway(charges, int(p.capacity()))
	if err != nil {
		return nil, err
	}
	url, stop, err := process.Show(ctx, "127.0.0.1:0", gate.handler())
	if err != nil {
		return nil, err
	}
	defer stop()
	var t counters
	fleet := newFleet(url, &t)
	defer fleet.close()
	if p.page != "" {
		page, stop, err := process.Show(ctx, p.page, newPage(gate, fleet))
		if err != nil {
			return nil, err
		}
		defer stop()
		fmt.Fprintf(p.out, "state page: %s/?refresh=2\n", page)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	goodput := make(chan float64, 1)
	go func() {
		served := t.watch(ctx, p.out, p.capacity())
		goodput <- float64(served) / time.Since(start).Seconds()
	}()
	phases := p.phases()
	ended := make([]endedPhase, 0, len(phases))
	for _, phase := range phases {
		before := t.read()
		charges.slower.Store(phase.slower)
		length := p.length / time.Duration(len(phases))
		ctx, cancel := context.WithTimeout(ctx, length)
		state := make(chan admission.ShedderState, 1)
		time.AfterFunc(length*9/10, func() { state <- gate.shedder.State() })
		fleet.send(ctx, phase.shop*p.capacity(), p.capacity()/4, phase.bulk*p.capacity())
		cancel()
		ended = append(ended, endedPhase{phase.name, t.read().since(before), <-state})
	}
	cancel()
	return &result{goodput: <-goodput, figures: t.read(), maxCharges: charges.maxPerKey(), phases: ended}, nil
}
