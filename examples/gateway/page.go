package main

import (
	"context"
	"net/http"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/statepage"
)

// newPage returns the state page of the gateway and of Transports.
func newPage(g *gateway, transports map[string]*resilienthttp.Transport) http.Handler {
	return &statepage.Handler{
		Title:      "gateway",
		Transports: transports,
		Sources: []statepage.Source{
			{Name: "Shedder", State: func(context.Context) (any, error) { return g.shedder.State(), nil }},
			{Name: "Quota", State: g.remaining},
		},
	}
}

// remaining returns the remaining quota of each account.
func (g *gateway) remaining(ctx context.Context) (any, error) {
	remaining := map[string]int{}
	for _, a := range g.accounts {
		quota := g.free
		if a.paid {
			quota = g.paid
		}
		result, err := quota.Take(ctx, a.name, 0)
		if err != nil {
			return nil, err
		}
		remaining[a.name] = result.Remaining
	}
	return remaining, nil
}
