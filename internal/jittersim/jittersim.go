// Package jittersim simulates clients that contend for one row, each with a backoff:
// the experiment of Marc Brooker, "Exponential Backoff And Jitter", AWS
// Architecture Blog, 2015
// (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
//
// The model is that of its public simulator
// (https://github.com/aws-samples/aws-arch-backoff-simulator): clients read the
// version of one row and write it under optimistic concurrency control; of those
// that have read the same version only the first write succeeds, and the others
// start over after a backoff. Each leg over the network takes
// |normal(10 ms, 2 ms)|. All start at once, and each is done when its one write
// has succeeded: one client can succeed per version, so n clients contend for n
// rounds.
package jittersim

import (
	"math"
	"math/rand/v2"
	"time"
)

// The experiment's constants.
const (
	Base   = 5 * time.Millisecond
	Max    = 2 * time.Second
	mean   = 10 * time.Millisecond
	stdDev = 2 * time.Millisecond
)

// Outcome is that of one contest, or the mean of several.
type Outcome struct {
	Calls float64       // writes, the failed ones included
	Time  time.Duration // until the last client is done
}

// Mean is the mean of as many contests as there are seeds.
func Mean(seeds, clients int, backoff func(retry int, prev time.Duration) time.Duration) Outcome {
	var sum Outcome
	for seed := range seeds {
		o := Run(clients, backoff, uint64(seed))
		sum.Calls += o.Calls
		sum.Time += o.Time
	}
	return Outcome{Calls: sum.Calls / float64(seeds), Time: sum.Time / time.Duration(seeds)}
}

// message arrives at a moment of the simulated time.
type message struct {
	at      time.Duration
	client  int
	kind    kind
	version int // of the row, as the client has read it
	ok      bool
}

type kind int

const (
	readAsked kind = iota
	readAnswered
	writeAsked
	writeAnswered
)

// Run is one contest. The network is seeded; a Backoff draws from a source of its
// own.
func Run(clients int, backoff func(retry int, prev time.Duration) time.Duration, seed uint64) Outcome {
	network := rand.New(rand.NewPCG(seed, 1))
	leg := func() time.Duration {
		return time.Duration(math.Abs(network.NormFloat64()*float64(stdDev) + float64(mean)))
	}
	var (
		q       queue
		retries = make([]int, clients)
		waits   = make([]time.Duration, clients)
		version int
		o       Outcome
	)
	for c := range clients {
		q.push(message{at: leg(), client: c})
	}
	for len(q) > 0 {
		m := q.pop()
		o.Time = m.at
		next := m
		next.at += leg()
		next.kind++
		switch m.kind {
		case readAsked:
			next.version = version
		case readAnswered:
		case writeAsked:
			o.Calls++
			if next.ok = m.version == version; next.ok {
				version++
			}
		case writeAnswered:
			if m.ok {
				continue
			}
			c := m.client
			retries[c]++
			waits[c] = backoff(retries[c], waits[c])
			next.at += waits[c]
			next.kind = readAsked
		}
		q.push(next)
	}
	return o
}

// queue is a binary heap of messages, the earliest first. container/heap would
// allocate for each of them.
type queue []message

func (q *queue) push(m message) {
	*q = append(*q, m)
	h := *q
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if h[parent].at <= h[i].at {
			break
		}
		h[parent], h[i] = h[i], h[parent]
		i = parent
	}
}

func (q *queue) pop() message {
	h := *q
	first, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && h[child+1].at < h[child].at {
			child++
		}
		if h[i].at <= h[child].at {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	*q = h
	return first
}
