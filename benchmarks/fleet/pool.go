package fleet

import (
	"sync"
	"time"
)

// The server, where a scenario says nothing else.
const (
	queueMax = 1000
	workers  = 12
	service  = 10 * time.Millisecond
	giveUp   = 500 * time.Millisecond // of the base, for each attempt
)

// pool is a queue, first in, first out, before a number of workers.
type pool struct {
	workers func() int // that there are now
	service time.Duration
	room    int // of the queue

	mu    sync.Mutex
	busy  int
	queue []*job
}

// job is a request in the queue. When it is done, there is room to say so whether
// or not somebody waits.
type job struct{ done chan struct{} }

// enter takes a request in, or returns nil: the queue is full.
func (p *pool) enter() *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) >= p.room && (p.room > 0 || p.busy >= p.workers()) {
		return nil
	}
	j := &job{done: make(chan struct{}, 1)}
	p.queue = append(p.queue, j)
	p.work()
	return j
}

// work gives the first jobs of the queue to the workers that are free: more than
// one where workers have come back. The pool is locked.
func (p *pool) work() {
	for len(p.queue) > 0 && p.busy < p.workers() {
		j := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.busy++
		time.AfterFunc(p.service, func() { p.end(j) })
	}
}

// end ends a job, whether or not its client still waits.
func (p *pool) end(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.done <- struct{}{}
	p.busy--
	p.work()
}
