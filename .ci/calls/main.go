// Calls makes four calls through a Transport and stores which of its functions they pass. `go run ./.ci/check structure` builds it
// with coverage counters, and reads them:
//
//	go build -cover -covermode=atomic -coverpkg=… -o calls ./.ci/calls && calls FOLDER
//
// FOLDER gets a folder for each call, and in it one for each part of the call: before Base, between two attempts, and after Base.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/coverage"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// call is a call of which the functions are counted. Base gives its answers one after the other.
type call struct {
	name, method string // a name without commas, which separate the folders for `go tool covdata`
	answers      []answer
}

// answer is a response of Base.
type answer struct {
	status int
	header http.Header
}

func calls() []call {
	quota := http.Header{"X-Ratelimit-Limit": {"1000"}, "X-Ratelimit-Remaining": {"900"}, "X-Ratelimit-Reset": {"60"}}
	return []call{
		{"GET", http.MethodGet, []answer{{200, nil}}},
		{"POST with a key and a quota", http.MethodPost, []answer{{200, quota}}},
		{"503 then 200", http.MethodGet, []answer{{503, nil}, {200, nil}}},
		{"429 with Retry-After then 200", http.MethodGet, []answer{{429, http.Header{"Retry-After": {"1"}}}, {200, nil}}},
	}
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: calls FOLDER")
	}
	for i, c := range calls() {
		if err := c.count(filepath.Join(args[0], fmt.Sprintf("%d %s", i+1, c.name))); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// warmUp is the number of successful calls before the one that is counted. The first calls to a host pass functions that no later
// one passes, and a call is retried only if others have succeeded.
const warmUp = 20

// count makes the call at a host that works, and stores the counters of each of its parts.
func (c call) count(folder string) error {
	base := &base{usual: c.answers[len(c.answers)-1]}
	transport := &resilienthttp.Transport{Base: base}
	for range warmUp {
		if err := c.make(transport); err != nil {
			return err
		}
	}
	counters := &counters{folder: folder}
	base.counters = counters
	base.answers = c.answers
	counters.begin()
	if err := c.make(transport); err != nil {
		return err
	}
	if len(base.answers) > 0 {
		return fmt.Errorf("answers that no attempt got: %v", base.answers)
	}
	time.Sleep(100 * time.Millisecond) // what a call does beside its caller, such as to read a discarded response
	counters.end("after Base")
	return counters.err
}

// make makes a call as a program does, and reads its response to the end.
func (c call) make(transport http.RoundTripper) error {
	var body io.Reader
	if c.method == http.MethodPost {
		body = strings.NewReader(`{"amount": 100}`)
	}
	req, err := http.NewRequestWithContext(context.Background(), c.method, "http://api.test/charges", body)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d, want 200", resp.StatusCode)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// base is a Base in memory.
type base struct {
	answers  []answer  // the next ones
	usual    answer    // what follows
	counters *counters // nil before the call that is counted
	attempts int
}

func (b *base) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.counters != nil {
		b.counters.end([]string{"before Base", "between"}[min(b.attempts, 1)])
		defer b.counters.begin()
		b.attempts++
	}
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
	}
	next := b.usual
	if len(b.answers) > 0 {
		next = b.answers[0]
		b.answers = b.answers[1:]
	}
	header := next.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	const text = "ok"
	return &http.Response{
		StatusCode: next.status, Header: header, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
		Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// counters are those that the compiler has added to the functions of the client.
type counters struct {
	folder string
	parts  int
	err    error
}

// begin sets them to zero.
func (c *counters) begin() { c.err = errors.Join(c.err, coverage.ClearCounters()) }

// end stores what was counted since begin as the next part of the call.
func (c *counters) end(part string) {
	c.parts++
	folder := filepath.Join(c.folder, fmt.Sprintf("%d %s", c.parts, part))
	c.err = errors.Join(c.err, os.MkdirAll(folder, 0o777), coverage.WriteMetaDir(folder), coverage.WriteCountersDir(folder))
}
