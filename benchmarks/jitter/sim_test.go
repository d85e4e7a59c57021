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

// strategy is a compared strategy.
type strategy struct {
	Name    string
	Backoff resilienthttp.Backoff
}

// strategies are those of the paper. The paper doubles before the first retry,
// so its base corresponds to 2·base here.
func strategies() []strategy {
	return []strategy{
		{"full jitter", resilienthttp.FullJitter(2*base, most)},
		{"decorrelated jitter", resilienthttp.DecorrelatedJitter(base, most)},
		{"exponential, no jitter", exponential},
		{"no backoff", resilienthttp.Constant(0)},
	}
}

func exponential(retry int, _ time.Duration) time.Duration {
	return min(2*base<<min(retry-1, 32), most)
}

// outcome is the outcome of one run, or the mean of several runs.
type outcome struct {
	Calls float64       // writes, including the failed ones
	Time  time.Duration // until the last client is done
}

// meanOf returns the mean of the runs with the seeds 0 to seeds-1.
func meanOf(seeds, clients int, backoff func(retry int, prev time.Duration) time.Duration) outcome {
	var sum outcome
	for seed := range seeds {
		o := run(clients, backoff, uint64(seed))
		sum.Calls += o.Calls
		sum.Time += o.Time
	}
	return outcome{Calls: sum.Calls / float64(seeds), Time: sum.Time / time.Duration(seeds)}
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

// run returns the outcome of one run. The seed determines the network's latencies; a backoff
// has its own source of randomness.
func run(clients int, backoff func(retry int, prev time.Duration) time.Duration, seed uint64) outcome {
	network := rand.New(rand.NewPCG(seed, 1))
	latency := func() time.Duration {
		return time.Duration(math.Abs(network.NormFloat64()*float64(stdDev) + float64(mean)))
	}
	var (
		q       queue
		retries = make([]int, clients)
		waits   = make([]time.Duration, clients)
		version int
		o       outcome
	)
	for c := range clients {
		heap.Push(&q, message{at: latency(), client: c})
	}
	for len(q) > 0 {
		m := heap.Pop(&q).(message)
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
func (q *queue) Push(m any)        { *q = append(*q, m.(message)) }

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
