package fleet

import (
	"sync"
	"time"
)

// The default server.
const (
	defaultQueue   = 1000
	defaultWorkers = 12
	defaultService = 10 * time.Millisecond
	defaultTimeout = 500 * time.Millisecond // timeout of an attempt
)

// pool is a FIFO queue in front of workers.
type pool struct {
	workers  func() int // current number
	queueMax int

	mu    sync.Mutex
	busy  int
	queue []*job
}

// job is a request in the queue. done has a buffer, because its client may have left.
type job struct {
	service time.Duration
	done    chan struct{}
}

// enter queues a request with its service time. It returns nil if the queue is full.
func (p *pool) enter(service time.Duration) *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) >= p.queueMax && (p.queueMax > 0 || p.busy >= p.workers()) {
		return nil
	}
	j := &job{service: service, done: make(chan struct{}, 1)}
	p.queue = append(p.queue, j)
	p.work()
	return j
}

// work starts the first jobs of the queue on all free workers. The pool is locked.
func (p *pool) work() {
	for len(p.queue) > 0 && p.busy < p.workers() {
		j := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.busy++
		time.AfterFunc(j.service, func() { p.end(j) })
	}
}

// end ends a job.
func (p *pool) end(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.done <- struct{}{}
	p.busy--
	p.work()
}
