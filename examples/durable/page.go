package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/console"
	"github.com/resilienthttp/resilienthttp/examples/internal/process"
	"github.com/resilienthttp/resilienthttp/statepage"
)

// showPages serves the state page and the console until stop is called. Each client that can reach
// the address may use the forms.
func showPages(ctx context.Context, address string, store durable.Store, out io.Writer) (stop func(), err error) {
	url, stop, err := process.Show(ctx, address, pages(&durable.Engine{Store: store}))
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "state page: %s/?refresh=2\ndead letters: %[1]s/dead\n", url)
	return stop, nil
}

func pages(engine *durable.Engine) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", &statepage.Handler{Title: "payments", Sources: []statepage.Source{
		{Name: "intents", State: func(ctx context.Context) (any, error) { return stateCounts(ctx, engine) }},
	}})
	mux.Handle("/dead", &console.Handler{
		Engine: engine, Title: "payments: dead letters", By: func(*http.Request) string { return "the operator" },
		Describe: func(r *durable.Record) string { return string(r.Payload) },
	})
	return mux
}

// stateCounts returns the number of payments in each state, and the age of the oldest due one.
func stateCounts(ctx context.Context, engine *durable.Engine) (any, error) {
	stats, err := engine.Stats(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[string]any{"workers": stats.Workers, "due": stats.Due}
	if !stats.Oldest.IsZero() {
		counts["due for"] = stats.Now.Sub(stats.Oldest).Round(time.Millisecond).String()
	}
	for state, n := range stats.States {
		counts[state.String()] = n
	}
	return counts, nil
}
