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

// state is the part of the page's JSON that this program reads.
type state struct {
	Transports []struct {
		Scopes []struct {
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
		} `json:"scopes"`
	} `json:"transports"`
}

func read(ctx context.Context, client *http.Client, page string) (*state, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page+"?format=json", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var s state
	return &s, json.NewDecoder(resp.Body).Decode(&s)
}

// answer writes the three answers and their sources.
func (w *watch) answer(ctx context.Context, out io.Writer, client *http.Client, page string, took time.Duration) error {
	s, err := read(ctx, client, page)
	if err != nil {
		return err
	}
	record, span := w.lines.last("event=call_done", "scope=bank.example", "queue_wait="), w.spans.last(`"resilienthttp.queue_wait"`)
	if record == "" || span == "" {
		return errors.New("no log record or span of the slow call")
	}
	fmt.Fprintf(out, "\nWhy did the last charge take %v?\n\n", took.Round(100*time.Millisecond))
	fmt.Fprintf(out, "the log   %s\n\nthe span  %s\n\nthe page  ", record, span)
	for _, t := range s.Transports {
		for _, scope := range t.Scopes {
			if scope.Scope == "bank.example" {
				fmt.Fprintf(out, "%s  %.1f s  %s\n", scope.Scope, scope.Slowest.Latency, scope.Slowest.Explanation)
			}
		}
	}
	fmt.Fprint(out, "\nWhich hosts are rejected now?\n\n")
	for _, t := range s.Transports {
		for _, scope := range t.Scopes {
			if b := scope.Blocked; b != nil && b.Rejecting {
				fmt.Fprintf(out, "the page  %s  until %s  %s\n", scope.Scope, b.Until.Format(time.TimeOnly), b.Reason)
			}
		}
	}
	fmt.Fprint(out, "\nHow full is the quota?\n\n")
	for _, t := range s.Transports {
		for _, scope := range t.Scopes {
			for _, q := range scope.Quotas {
				fmt.Fprintf(out, "the page  %s  %s  %d of %d remain\n", scope.Scope, q.Bucket, q.Remaining, q.Limit)
			}
		}
	}
	return nil
}
