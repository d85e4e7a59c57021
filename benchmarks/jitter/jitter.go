// Package jitter simulates clients with a backoff that contend for one database row. It
// is the experiment of Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture
// Blog, 2015 (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
//
// The model is that of its public simulator
// (https://github.com/aws-samples/aws-arch-backoff-simulator). Clients read the version of
// the row and write it under optimistic concurrency control. Of the clients with the same
// version, the first write succeeds; the others start again after a backoff. A message takes
// |normal(10 ms, 2 ms)|. All clients start at the same time, and each needs one successful
// write.
package jitter

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

// The experiment's constants.
const (
	base   = 5 * time.Millisecond
	most   = 2 * time.Second
	mean   = 10 * time.Millisecond
	stdDev = 2 * time.Millisecond
)

// Strategy is a compared strategy.
type Strategy struct {
	Name    string
	Backoff resilienthttp.Backoff
}

// Strategies returns the strategies of the paper. The paper doubles before the first retry,
// so its base corresponds to 2·base here.
func Strategies() []Strategy {
	return []Strategy{
		{"full jitter", resilienthttp.FullJitter(2*base, most)},
		{"decorrelated jitter", resilienthttp.DecorrelatedJitter(base, most)},
		{"exponential, no jitter", exponential},
		{"no backoff", resilienthttp.Constant(0)},
	}
}

func exponential(retry int, _ time.Duration) time.Duration {
	return min(2*base<<min(retry-1, 32), most)
}

// Outcome is the outcome of one run, or the mean of several runs.
type Outcome struct {
	Calls float64       // writes, including the failed ones
	Time  time.Duration // until the last client is done
}

// Mean returns the mean of the runs with the seeds 0 to seeds-1.
func Mean(seeds, clients int, backoff func(retry int, prev time.Duration) time.Duration) Outcome {
	var sum Outcome
	for seed := range seeds {
		o := Run(clients, backoff, uint64(seed))
		sum.Calls += o.Calls
		sum.Time += o.Time
	}
	return Outcome{Calls: sum.Calls / float64(seeds), Time: sum.Time / time.Duration(seeds)}
}

// message is a message that arrives at a simulated time.
type message struct {
	at      time.Duration
	client  int
	kind    kind
	version int // the version that the client has read
	ok      bool
}

type kind int

const (
	readRequest kind = iota
	readResponse
	writeRequest
	writeResponse
)

// Run returns the outcome of one run. The seed determines the network's latencies; a backoff
// has its own source of randomness.
func Run(clients int, backoff func(retry int, prev time.Duration) time.Duration, seed uint64) Outcome {
	network := rand.New(rand.NewPCG(seed, 1))
	latency := func() time.Duration {
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
		heap.Push(&q, message{at: latency(), client: c})
	}
	for len(q) > 0 {
		m := heap.Pop(&q).(message) //nolint:errcheck // only messages
		o.Time = m.at
		next := m
		next.at += latency()
		next.kind++
		switch m.kind {
		case readRequest:
			next.version = version
		case readResponse:
		case writeRequest:
			o.Calls++
			if next.ok = m.version == version; next.ok {
				version++
			}
		case writeResponse:
			if m.ok {
				continue
			}
			c := m.client
			retries[c]++
			waits[c] = backoff(retries[c], waits[c])
			next.at += waits[c]
			next.kind = readRequest
		}
		heap.Push(&q, next)
	}
	return o
}

// queue is a heap of messages, the earliest first.
type queue []message

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(m any)        { *q = append(*q, m.(message)) } //nolint:errcheck // only messages

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
