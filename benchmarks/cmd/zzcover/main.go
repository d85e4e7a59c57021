package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/coverage"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

type base struct {
	arm   *int
	seq   []int
	calls int
}

func (b *base) RoundTrip(r *http.Request) (*http.Response, error) {
	status := 200
	if *b.arm > 0 {
		status = b.seq[b.calls]
		b.calls++
		if b.calls == *b.arm {
			if err := coverage.WriteCountersDir(os.Args[2]); err != nil {
				panic(err)
			}
			os.Exit(0)
		}
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(nil)), Request: r}, nil
}

func main() {
	arm := 0
	b := &base{arm: &arm, seq: []int{200}}
	t := &resilienthttp.Transport{Base: b}
	client := &http.Client{Transport: t}
	do := func() {
		req, _ := http.NewRequest("GET", "http://a.test/x", nil)
		resp, err := client.Do(req)
		if err != nil {
			panic(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	do()
	do()
	time.Sleep(time.Millisecond)
	if err := coverage.WriteMetaDir(os.Args[2]); err != nil {
		panic(err)
	}
	coverage.ClearCounters()
	switch os.Args[1] {
	case "get":
		arm = 1
		do()
	case "503":
		b.seq, arm = []int{503, 200, 200}, 99
		do()
		coverage.WriteCountersDir(os.Args[2])
		os.Exit(0)
	}
	fmt.Println("?")
}
