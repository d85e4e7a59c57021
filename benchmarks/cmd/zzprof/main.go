package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

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

type floor struct{ base http.RoundTripper }

func (f floor) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
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

func (c *cancelOnClose) Close() error { defer c.cancel(); return c.ReadCloser.Close() }

func main() {
	who, method := os.Args[1], os.Args[2]
	hosts, _ := strconv.Atoi(os.Args[3])
	n, _ := strconv.Atoi(os.Args[4])
	urls := []string{}
	for i := range hosts {
		urls = append(urls, fmt.Sprintf("http://api-%d.example/v1/charges", i))
	}
	client := &http.Client{}
	switch who {
	case "bare":
		client.Transport = instant{}
	case "floor":
		client.Transport = floor{instant{}}
	case "ours":
		client.Transport = &resilienthttp.Transport{Base: instant{}}
	}
	payload := make([]byte, 64)
	if len(os.Args) > 5 {
		f, _ := os.Create(os.Args[5])
		_ = pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	for i := range n {
		var body io.Reader
		if method == "POST" {
			body = bytes.NewReader(payload)
		}
		req, _ := http.NewRequest(method, urls[i%hosts], body)
		resp, err := client.Do(req)
		if err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}
