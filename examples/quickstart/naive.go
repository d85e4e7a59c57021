package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// naive is a client with a for loop: three attempts with waits between them.
type naive struct {
	url    string
	client *http.Client
}

func newNaive(url string) *naive {
	return &naive{url: url, client: &http.Client{Timeout: 250 * time.Millisecond}}
}

func (n *naive) charge(ctx context.Context, o order) (c charge, err error) {
	body, err := json.Marshal(o)
	if err != nil {
		return charge{}, err
	}
	for try := 1; try <= 3; try++ {
		if c, err = n.post(ctx, body); err == nil {
			return c, nil
		}
		time.Sleep(time.Duration(try) * 200 * time.Millisecond)
	}
	return charge{}, err
}

func (n *naive) post(ctx context.Context, body []byte) (charge, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url, bytes.NewReader(body))
	if err != nil {
		return charge{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := n.client.Do(req)
	if err != nil {
		return charge{}, err
	}
	return readCharge(resp)
}
