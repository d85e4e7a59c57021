// Passes makes three calls, and writes the coverage counters of each to a directory of its own: when Base gets the first
// request, and when the call has ended. The structure command builds it with -cover.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/coverage"
	"strings"

	"github.com/resilienthttp/resilienthttp"
)

// call is a call that is made once before, so that its server is known.
type call struct {
	name     string
	request  func() (*http.Request, error)
	statuses []int // of the responses
}

func main() {
	get := func() (*http.Request, error) { return http.NewRequest(http.MethodGet, "http://api.test/", http.NoBody) }
	post := func() (*http.Request, error) {
		return http.NewRequest(http.MethodPost, "http://quota.test/", strings.NewReader("body"))
	}
	for _, c := range []call{
		{"GET", get, []int{200}},
		{"POST-with-key-and-quota", post, []int{200}},
		{"503-then-200", get, []int{503, 200}},
	} {
		if err := c.measure(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// measure makes the call twice, and writes the counters of the second one.
func (c call) measure(dir string) error {
	base := &server{}
	client := &http.Client{Transport: &resilienthttp.Transport{Base: base}}
	if err := c.send(client, base, nil); err != nil {
		return err
	}
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	if err := c.send(client, base, func() error { return write(dir, c.name+".before") }); err != nil {
		return err
	}
	return write(dir, c.name+".whole")
}

func (c call) send(client *http.Client, base *server, arrives func() error) error {
	req, err := c.request()
	if err != nil {
		return err
	}
	base.statuses, base.arrives = c.statuses, arrives
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return err
}

func write(dir, name string) error {
	dir = filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if err := coverage.WriteMetaDir(dir); err != nil {
		return err
	}
	return coverage.WriteCountersDir(dir)
}

// server is a Base that responds at once.
type server struct {
	statuses []int        // of the next responses
	arrives  func() error // called for the next request; nil: nothing
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.arrives != nil {
		if err := s.arrives(); err != nil {
			return nil, err
		}
		s.arrives = nil
	}
	header := http.Header{}
	if r.URL.Host == "quota.test" {
		header.Set("Ratelimit-Policy", `"calls";q=100;w=60`)
		header.Set("Ratelimit", `"calls";r=99;t=60`)
	}
	resp := &http.Response{StatusCode: s.statuses[0], Header: header, Body: http.NoBody, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	s.statuses = s.statuses[1:]
	return resp, nil
}
