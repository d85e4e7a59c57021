package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// scope is the part of a scope in the page's JSON that this program reads.
type scope struct {
	Scope   string `json:"scope"`
	Blocked *struct {
		Rejecting bool      `json:"rejecting"`
		Until     time.Time `json:"until"`
		Reason    string    `json:"reason"`
	} `json:"blocked"`
	Quotas []struct {
		Bucket    string `json:"bucket"`
		Limit     int64  `json:"limit"`
		Remaining int64  `json:"remaining"`
	} `json:"quotas"`
	Slowest struct {
		Latency     float64 `json:"latency_seconds"`
		Explanation string  `json:"explanation"`
	} `json:"slowest_call"`
}

// read returns the scopes of all Transports.
func read(ctx context.Context, client *http.Client, page string) (scopes []scope, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page+"?format=json", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var state struct {
		Transports []struct {
			Scopes []scope `json:"scopes"`
		} `json:"transports"`
	}
	err = json.NewDecoder(resp.Body).Decode(&state)
	for _, t := range state.Transports {
		scopes = append(scopes, t.Scopes...)
	}
	return scopes, err
}

// answer writes the three answers and their sources.
func (w *watch) answer(ctx context.Context, out io.Writer, client *http.Client, page string, took time.Duration) error {
	scopes, err := read(ctx, client, page)
	if err != nil {
		return err
	}
	record, span := w.lines.last("event=call_done", "scope=bank.example", "queue_wait="), w.spans.last(`"resilienthttp.queue_wait"`)
	if record == "" || span == "" {
		return errors.New("no log record or span of the slow call")
	}
	fmt.Fprintf(out, "\nWhy did the last charge take %v?\n\n", took.Round(100*time.Millisecond))
	fmt.Fprintf(out, "the log   %s\n\nthe span  %s\n\nthe page  ", record, span)
	for _, s := range scopes {
		if s.Scope == "bank.example" {
			fmt.Fprintf(out, "%s  %.1f s  %s\n", s.Scope, s.Slowest.Latency, s.Slowest.Explanation)
		}
	}
	fmt.Fprint(out, "\nWhich hosts are rejected now?\n\n")
	for _, s := range scopes {
		if b := s.Blocked; b != nil && b.Rejecting {
			fmt.Fprintf(out, "the page  %s  until %s  %s\n", s.Scope, b.Until.Format(time.TimeOnly), b.Reason)
		}
	}
	fmt.Fprint(out, "\nHow full is the quota?\n\n")
	for _, s := range scopes {
		for _, q := range s.Quotas {
			fmt.Fprintf(out, "the page  %s  %s  %d of %d remain\n", s.Scope, q.Bucket, q.Remaining, q.Limit)
		}
	}
	return nil
}
