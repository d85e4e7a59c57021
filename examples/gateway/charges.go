package main

import (
	"net/http"
	"sync"
	"time"
)

// charges is the handler: so many workers, each of which takes its time for a charge.
type charges struct {
	workers chan struct{}
	service time.Duration

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
		http.Error(w, "too late", http.StatusServiceUnavailable)
		return
	}
	defer func() { <-c.workers }()
	time.Sleep(c.service)
	c.mu.Lock()
	c.made[accountOf(r).name+" "+r.Header.Get("Idempotency-Key")]++
	c.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
}

// most is how often the one was charged that was charged most often.
func (c *charges) most() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := 0
	for _, n := range c.made {
		most = max(most, n)
	}
	return most
}
