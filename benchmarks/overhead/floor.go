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

// floor is the minimum for a client with a timeout per attempt. Close of the body cancels the
// context.
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

// Added is the CPU time that the floor and this library add to a bare client's call. It
// includes garbage collection and depends little on other programs.
type Added struct {
	Bare, Floor, Ours time.Duration // Floor and Ours without Bare; medians of the rounds
}

// Ratio is Ours divided by Floor.
func (a Added) Ratio() float64 { return float64(a.Ours) / float64(max(a.Floor, 1)) }

// MeasureAdded measures in memory, with interleaved batches. The calls use the number of
// scopes.
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
		callers[i].calls(2 * scopes) // creates the state of each scope
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
