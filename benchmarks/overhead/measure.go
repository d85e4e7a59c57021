// Package overhead measures what a library adds to a request that succeeds at once.
//
// The clients take turns: each round makes a batch of calls with each client, in a rotating
// order. A client's result is the ratio of its time to the bare client's time in the same
// round, and the median over the rounds. Noise of the machine affects all clients of a round.
// Rounds are many and short, so that most of them are not interrupted.
//
// The tables of MemoryCPU, LoopbackCPU and Hosts have the lower quartile of CPU times instead, without the garbage collector.
package overhead

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Row is the result of one peer under one load.
type Row struct {
	Peer          peers.Peer
	Ratio         float64 // of its time to the first peer's; the median of the rounds
	Low, High     float64 // quartiles
	Allocs, Bytes float64 // added to the first peer's, per call
}

// Measure measures the peers under one load, for the time of a batch in each round. The others are compared with the first.
func Measure(libraries []peers.Peer, numberOfRounds int, batch time.Duration, l Load, w Way) []Row {
	callers := make([]*caller, len(libraries))
	defer func() {
		for _, caller := range callers {
			caller.close()
		}
	}()
	for i, p := range libraries {
		callers[i] = newCaller(p, l, w)
		callers[i].calls(goroutines) // connections, caches
		callers[i].batch = calibrate(callers[i], batch)
	}
	rows := make([]Row, len(callers))
	for i, ratios := range rounds(callers, numberOfRounds) {
		rows[i] = Row{Peer: libraries[i], Ratio: ratios[len(ratios)/2], Low: ratios[len(ratios)/4], High: ratios[len(ratios)*3/4]}
	}
	if !w.Parallel {
		count(rows, callers)
	}
	return rows
}

// rounds returns the ratios of each caller's time per call to the first caller's in the same
// round, sorted. In a round, each caller makes as many calls as fit into about the same time,
// because a caller that copies bodies of 1 MiB is hundreds of times slower.
func rounds(callers []*caller, rounds int) [][]float64 {
	began := time.Now()
	ratios := inTurns(callers, rounds, func() time.Duration { return time.Since(began) }, func() {})
	for round := range rounds {
		first := ratios[0][round]
		for i := range ratios {
			ratios[i][round] /= first
		}
	}
	for i := range ratios {
		slices.Sort(ratios[i])
	}
	return ratios
}

// inTurns returns the time of one call of each caller in each round. A round begins with before.
func inTurns(callers []*caller, rounds int, clock func() time.Duration, before func()) [][]float64 {
	times := make([][]float64, len(callers))
	for round := range rounds {
		before()
		for i := range callers {
			i = (i + round) % len(callers) // otherwise one caller always pays for another's garbage
			start, batch := clock(), callers[i].batch
			callers[i].calls(batch)
			times[i] = append(times[i], float64(clock()-start)/float64(batch))
		}
	}
	return times
}

// count sets the allocations added to those of the first caller.
func count(rows []Row, callers []*caller) {
	allocs, size := callers[0].allocations()
	for i := range rows[1:] {
		a, s := callers[1+i].allocations()
		rows[1+i].Allocs, rows[1+i].Bytes = a-allocs, s-size
	}
}

// calibrate returns the number of calls that take about the time: at least one per goroutine.
// It is the maximum of three tries, because a try may be interrupted.
func calibrate(c *caller, batch time.Duration) int {
	unit := 1
	if c.way.Parallel {
		unit = goroutines
	}
	most := unit
	for range 3 {
		n, took := unit, time.Duration(0)
		for ; took < batch/4; n *= 2 {
			start := time.Now()
			c.calls(n)
			took = time.Since(start)
		}
		n /= 2 // the last number that fit
		most = max(most, int(float64(n)*float64(batch)/float64(took))/unit*unit)
	}
	return most
}

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
	URLs     []string // used in turn, by one goroutine
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
	return Way{Name: "in memory", URLs: []string{"http://api.example/v1/charges"}, Base: func() http.RoundTripper { return instant{} }}
}

// Loopback uses keep-alive connections to a server in another process.
func Loopback(url string) Way {
	return Way{Name: "loopback", URLs: []string{url}, Base: func() http.RoundTripper {
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
	url := c.way.URLs[c.turn]
	if n := len(c.way.URLs); n > 1 {
		c.turn = (c.turn + 1) % n
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

// close ends the idle connections.
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

// allocations returns the mean allocations and bytes of a call.
func (c *caller) allocations() (allocs, size float64) {
	const n = 100
	c.calls(2) // creates state and connections
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.calls(n)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / n, float64(after.TotalAlloc-before.TotalAlloc) / n
}

// Program is a program that sends one GET with a library.
type Program struct {
	Name   string
	Import string // "": only net/http
	Client string // an expression of type *http.Client
}

// Programs returns the measured programs. The first one has no library.
func Programs() []Program {
	return []Program{
		{"net/http", "", "http.DefaultClient"},
		{"resilienthttp", "github.com/resilienthttp/resilienthttp", "resilienthttp.NewClient()"},
		{"go-retryablehttp", "github.com/hashicorp/go-retryablehttp", "retryablehttp.NewClient().StandardClient()"},
		{
			"failsafe-go", "github.com/failsafe-go/failsafe-go/failsafehttp",
			"&http.Client{Transport: failsafehttp.NewRoundTripper(nil, failsafehttp.NewRetryPolicyBuilder().Build())}",
		},
	}
}

// Size builds the program in a temporary directory and returns the size of the binary in
// bytes. It needs the go command and must run in this module.
func (p Program) Size(ctx context.Context) (int64, error) {
	size, _, err := p.build(ctx)
	return size, err
}

// CompileTime returns the processor time, without the system's, that the program takes to be compiled with all its packages, those of the
// standard library too: a half to one minute.
func (p Program) CompileTime(ctx context.Context) (time.Duration, error) {
	_, used, err := p.build(ctx, "-a")
	return used, err
}

// build returns the size of the program's binary and the processor time that the go command and the compilers used.
func (p Program) build(ctx context.Context, flags ...string) (size int64, used time.Duration, err error) {
	dir, err := os.MkdirTemp("", "overhead")
	if err != nil {
		return 0, 0, fmt.Errorf("binary: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	imports := ""
	if p.Import != "" {
		imports = fmt.Sprintf("\t%q\n", p.Import)
	}
	source := "package main\n\nimport (\n\t\"fmt\"\n\t\"net/http\"\n" + imports +
		")\n\nfunc main() {\n\tvar client *http.Client = " + p.Client + "\n\tfmt.Println(client.Get(\"http://api.example/\"))\n}\n"
	file, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		return 0, 0, fmt.Errorf("binary: %w", err)
	}
	args := append([]string{"build"}, flags...)
	args = append(args, "-o", binary, file)
	command := exec.CommandContext(ctx, "go", args...) //nolint:gosec // both paths are of the directory made above
	if out, err := command.CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("binary: go build: %w: %s", err, out)
	}
	info, err := os.Stat(binary)
	if err != nil {
		return 0, 0, fmt.Errorf("binary: %w", err)
	}
	return info.Size(), command.ProcessState.UserTime(), nil
}
