package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/examples/internal/process"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/statepage"
)

// showPage serves the client's state and the unknown outcomes on an address until
// stop is called.
func (c *client) showPage(ctx context.Context, address string, records idempotency.Store, out io.Writer) (stop func(), err error) {
	url, stop, err := process.Show(ctx, address, c.page(records))
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "state of the client: %s/?refresh=2\n", url)
	return stop, nil
}

func (c *client) page(records idempotency.Store) http.Handler {
	h := &statepage.Handler{Title: "payments", Sources: []statepage.Source{
		{Name: "charges", State: c.counts},
		{Name: "unknown outcomes", State: func(ctx context.Context) (any, error) { return unknowns(ctx, records) }},
	}}
	if transport, ok := c.http.Transport.(*resilienthttp.Transport); ok {
		h.Transports = map[string]*resilienthttp.Transport{"client of the payment service": transport}
	}
	return h
}

func (c *client) counts(context.Context) (any, error) {
	return map[string]int64{"attempts": c.attempts.Load(), "stored responses": c.replayed.Load(), "calls after a failed call": c.repeated.Load()}, nil
}

// unknowns returns the first operations with an unknown outcome, and since when.
func unknowns(ctx context.Context, records idempotency.Store) (any, error) {
	const most = 20
	var first []string
	for record, err := range records.Unknown(ctx, "") {
		if err != nil {
			return nil, err
		}
		if first = append(first, record.Key+" since "+record.Updated.Format(time.TimeOnly)); len(first) == most {
			break
		}
	}
	return first, nil
}
