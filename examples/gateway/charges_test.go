package main

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// charges is the handler. It calls a bank, which can make a number of charges at the same time.
type charges struct {
	workers chan struct{}
	service time.Duration
	slower  atomic.Int64 // the bank takes this many times as long; zero means not slower

	mu   sync.Mutex
	made map[string]int // by account and idempotency key
}

func newCharges(workers int, service time.Duration) *charges {
	return &charges{workers: make(chan struct{}, workers), service: service, made: map[string]int{}}
}

func (c *charges) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case c.workers <- struct{}{}:
	case <-r.Context().Done():
		http.Error(w, "deadline exceeded", http.StatusServiceUnavailable)
		return
	}
	defer func() { <-c.workers }()
	time.Sleep(c.service * time.Duration(max(1, c.slower.Load())))
	c.mu.Lock()
	c.made[accountOf(r).name+" "+r.Header.Get("Idempotency-Key")]++
	c.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
}

// maxPerKey returns the largest number of charges with one key.
func (c *charges) maxPerKey() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	result := 0
	for _, n := range c.made {
		result = max(result, n)
	}
	return result
}
