package overhead

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// floor is the least that gives each attempt a timeout; the body wrapper cancels when
// it is closed. Who wants timeouts pays this, whatever else he has.
type floor struct{ base http.RoundTripper }

const floorTimeout = 30 * time.Second

func (f floor) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), floorTimeout)
	resp, err := f.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &cancelOnClose{resp.Body, cancel}
	return resp, nil
}

type cancelOnClose struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c *cancelOnClose) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}

// Added is what the floor and this library add to a bare client's call, in processor
// time: what other programs do does not lengthen it much, and what a library leaves to
// the garbage collector is in it.
type Added struct {
	Bare, Floor, Ours time.Duration // Floor and Ours on top of Bare; medians of the rounds
}

// Ratio is what this library adds, in floors.
func (a Added) Ratio() float64 { return float64(a.Ours) / float64(max(a.Floor, 1)) }

// MeasureAdded measures it in memory, in interleaved slices, the calls spread over so
// many scopes.
func MeasureAdded(c Config, l Load, scopes int) (Added, error) {
	ours, err := peers.Named(peers.Ours)
	if err != nil {
		return Added{}, err
	}
	all := []peers.Client{
		&http.Client{Transport: instant{}}, &http.Client{Transport: floor{instant{}}}, ours[0].New(peers.Setting{Base: instant{}}),
	}
	callers := make([]*caller, len(all))
	for i, client := range all {
		way := InMemory()
		for s := range scopes {
			way.URLs = append(way.URLs, fmt.Sprintf("http://api-%d.example/v1/charges", s))
		}
		callers[i] = &caller{client: client, load: l, way: way, payload: make([]byte, l.Size)}
		callers[i].calls(2 * scopes) // what is made once for each scope
	}
	batch := calibrate(callers[0], c.Batch)
	times := make([][]time.Duration, len(all))
	for round := range c.Rounds {
		for i := range callers {
			i = (i + round) % len(callers)
			start := processorTime()
			callers[i].calls(batch)
			times[i] = append(times[i], (processorTime()-start)/time.Duration(batch))
		}
	}
	median := func(x []time.Duration) time.Duration {
		slices.Sort(x)
		return x[len(x)/2]
	}
	bare := median(times[0])
	return Added{Bare: bare, Floor: median(times[1]) - bare, Ours: median(times[2]) - bare}, nil
}
