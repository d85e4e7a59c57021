package resilienthttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// Client is a client of a payments API.
type Client struct {
	BaseURL string // such as https://api.payments.example
	APIKey  string
	HTTP    *http.Client // the application may replace it
}

func New(apiKey string) *Client {
	return &Client{
		BaseURL: "https://api.payments.example",
		APIKey:  apiKey,
		HTTP: &http.Client{Transport: &resilienthttp.Transport{
			// The vendor says that a charge takes at most 8 s.
			Policy:      resilienthttp.Policy{AttemptTimeout: 10 * time.Second, ClassifyBody: byCode},
			Idempotency: resilienthttp.Idempotency{Hosts: []string{"api.payments.example"}}, // that of BaseURL
		}},
	}
}

// byCode classifies the error codes that mean more than their status.
func byCode(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
	switch problemOf(body).Code {
	case "request_in_progress": // 409: the first request with this key is not finished
		a.RetryAfter = 2 * time.Second
		return resilienthttp.VerdictTransient
	case "monthly_limit": // 429: a wait does not help
		return resilienthttp.VerdictPermanent
	}
	return resilienthttp.VerdictDefault
}

type problem struct{ ID, Code string }

func problemOf(body []byte) (p problem) {
	_ = json.Unmarshal(body, &p)
	return p
}

var ErrDeclined = errors.New("payments: card declined")

// Charge charges a card. Calls with the same key make one charge.
func (c *Client) Charge(ctx context.Context, key string, amount int) (id string, err error) {
	ctx = resilienthttp.WithIdempotencyKey(ctx, key)
	payload, err := json.Marshal(map[string]int{"amount": amount})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.BaseURL+"/v1/charges", bytes.NewReader(payload))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+c.APIKey)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return "", err // a *resilienthttp.Error is in its chain
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode == http.StatusPaymentRequired:
		return "", ErrDeclined
	case resp.StatusCode/100 != 2:
		return "", fmt.Errorf("payments: status %d, code %q", resp.StatusCode, problemOf(body).Code)
	}
	return problemOf(body).ID, err
}

// An SDK with a Transport. The API declines the second card.
func ExampleTransport_sdk() {
	api := &faulttest.Server{Host: "api.payments.example", InMemory: true, Script: faulttest.Sequence(
		faulttest.Reply{Status: http.StatusConflict, Body: `{"code":"request_in_progress"}`},
		faulttest.OK(`{"id":"ch_1"}`),
		faulttest.Reply{Status: http.StatusPaymentRequired, Body: `{"code":"insufficient_funds"}`},
	)}
	api.Start(nil)
	defer api.Close()

	client := New("secret")
	client.BaseURL = api.URL
	client.HTTP.Transport.(*resilienthttp.Transport).Base = api.Transport()
	fmt.Println(client.Charge(context.Background(), "invoice-1", 100))
	fmt.Println(client.Charge(context.Background(), "invoice-2", 100))
	fmt.Println("requests:", api.Total())
	// Output:
	// ch_1 <nil>
	//  payments: card declined
	// requests: 3
}
