package overhead

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Load is one kind of request.
type Load struct {
	Name, Method string
	Size         int // of the body
}

// Loads returns the loads of the tables.
func Loads() []Load {
	return []Load{{"GET", http.MethodGet, 0}, {"POST 64 B", http.MethodPost, 64}, {"POST 1 MiB", http.MethodPost, 1 << 20}}
}

// Way is the connection between client and server.
type Way struct {
	Name     string
	URL      string
	URLs     []string // used in turn; nil: URL
	Base     func() http.RoundTripper
	Parallel bool // 16 goroutines
}

const goroutines = 16

// instant is a Base that responds at once.
type instant struct{}

func (instant) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{"Content-Type": {"application/json"}, "Date": {"Thu, 01 Jan 2026 00:00:00 GMT"}},
		Body:    io.NopCloser(bytes.NewReader(nil)),
		Request: r,
	}, nil
}

// InMemory has no network.
func InMemory() Way {
	return Way{Name: "in memory", URL: "http://api.example/v1/charges", Base: func() http.RoundTripper { return instant{} }}
}

// Loopback uses keep-alive connections to a server in another process.
func Loopback(url string) Way {
	return Way{Name: "loopback", URL: url, Base: func() http.RoundTripper {
		return &http.Transport{MaxIdleConnsPerHost: 2 * goroutines}
	}}
}

// caller repeats one kind of request, with a new http.Request for each call.
type caller struct {
	client  peers.Client
	base    http.RoundTripper
	load    Load
	way     Way
	payload []byte
	batch   int // calls in each round
	turn    int // index in way.URLs; one goroutine only

	ctx context.Context // of the requests
}

func newCaller(p peers.Peer, l Load, w Way) *caller {
	base := w.Base()
	return &caller{client: p.New(peers.Setting{Base: base}), base: base, load: l, way: w, payload: make([]byte, l.Size), ctx: context.Background()}
}

func (c *caller) call() {
	var body io.Reader
	if c.load.Size > 0 {
		body = bytes.NewReader(c.payload)
	}
	url := c.way.URL
	if n := len(c.way.URLs); n > 0 {
		url = c.way.URLs[c.turn%n]
		c.turn++
	}
	req, err := http.NewRequestWithContext(c.ctx, c.load.Method, url, body)
	if err != nil {
		panic(err) // the arguments are constants
	}
	resp, err := c.client.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		panic(fmt.Sprintf("%T, %s: %v, %v", c.client, c.load.Name, resp, err))
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

// close ends the idle connections. It does not close the client: that is safe only after all
// goroutines of calls have ended, which is unknown outside of virtual time.
func (c *caller) close() {
	if t, ok := c.base.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

func (c *caller) calls(n int) {
	if !c.way.Parallel {
		for range n {
			c.call()
		}
		return
	}
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for range n / goroutines {
				c.call()
			}
		})
	}
	group.Wait()
}

// allocations returns the mean allocations and bytes of n calls.
func (c *caller) allocations(n int) (allocs, size float64) {
	c.calls(2) // creates state and connections
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.calls(n)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n), float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
}
