package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// charger is what both clients can do.
type charger interface {
	charge(context.Context, order) (charge, error)
}

// outcome is what a customer believes to have happened.
type outcome struct {
	charge charge
	err    error
	took   time.Duration
}

// load has the workers charge all orders, each once, and returns what came of it.
func load(ctx context.Context, c charger, orders []order, workers int, done *atomic.Int64) tally {
	start := time.Now()
	outcomes := make([]outcome, len(orders)) // each is written by one worker
	todo := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range todo {
				began := time.Now()
				charge, err := c.charge(ctx, orders[i])
				outcomes[i] = outcome{charge, err, time.Since(began)}
				done.Add(1)
			}
		})
	}
	for i := range orders {
		select {
		case todo <- i:
		case <-ctx.Done(): // interrupted: nobody asks for the result
		}
	}
	close(todo)
	all.Wait()
	return tally{outcomes: outcomes, took: time.Since(start)}
}
