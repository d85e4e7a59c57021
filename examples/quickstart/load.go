package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// charger is implemented by both clients.
type charger interface {
	charge(context.Context, order) (charge, error)
}

// outcome is the result that a client reports for one order.
type outcome struct {
	charge charge
	err    error
	took   time.Duration
}

// load charges all orders with concurrent workers and returns the outcomes.
func load(ctx context.Context, c charger, orders []order, workers int, done *atomic.Int64) clientResult {
	start := time.Now()
	outcomes := make([]outcome, len(orders)) // each element is written by one worker
	todo := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range todo {
				start := time.Now()
				charge, err := c.charge(ctx, orders[i])
				outcomes[i] = outcome{charge, err, time.Since(start)}
				done.Add(1)
			}
		})
	}
	for i := range orders {
		select {
		case todo <- i:
		case <-ctx.Done(): // interrupted: the result is not used
		}
	}
	close(todo)
	all.Wait()
	return clientResult{outcomes: outcomes, took: time.Since(start)}
}
