package resilienthttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
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

// NewWithClient returns a Client for an application that has an http.Client: with a proxy, with certificates, with a mock.
func NewWithClient(apiKey string, own *http.Client) *Client {
	c := New(apiKey)
	transport := c.HTTP.Transport.(*resilienthttp.Transport)
	transport.Base = own.Transport // nil means the default of Base
	client := *own                 // with its Timeout, Jar and CheckRedirect
	client.Transport = transport
	c.HTTP = &client
	return c
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

	client := NewWithClient("secret", api.Client())
	client.BaseURL = api.URL
	fmt.Println(client.Charge(context.Background(), "invoice-1", 100))
	fmt.Println(client.Charge(context.Background(), "invoice-2", 100))
	fmt.Println("requests:", api.Total())
	// Output:
	// ch_1 <nil>
	//  payments: card declined
	// requests: 3
}

// translator writes the quota of an API that has a header of its own into the fields that a Transport follows.
type translator struct{ next http.RoundTripper }

// Unwrap shows the Transport the connections of next.
func (t translator) Unwrap() http.RoundTripper { return t.next }

// RoundTrip translates "Acme-Calls: 0 of 100, full in 12": what is left, the limit, and the seconds until the reset.
func (t translator) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	var left, limit, reset int
	if n, _ := fmt.Sscanf(resp.Header.Get("Acme-Calls"), "%d of %d, full in %d", &left, &limit, &reset); n == 3 {
		resp.Header.Set("RateLimit-Policy", fmt.Sprintf(`"calls";q=%d`, limit))
		resp.Header.Set("RateLimit", fmt.Sprintf(`"calls";r=%d;t=%d`, left, reset))
	}
	return resp, nil
}

// An API shows its quota in a header of its own. The first response says that nothing is left, so the second call is not
// sent. It may not wait, and fails.
func ExampleRateLimit_ownHeader() {
	api := faulttest.NewInMemory(nil, faulttest.Reply{Header: http.Header{"Acme-Calls": {"0 of 100, full in 12"}}})
	defer api.Close()
	client := &http.Client{Transport: &resilienthttp.Transport{
		Base:      translator{next: api.Transport()},
		RateLimit: &resilienthttp.RateLimit{MaxWait: -1},
	}}
	for range 2 {
		resp, err := client.Get(api.URL)
		if err != nil {
			fmt.Println("rate limited:", errors.Is(err, resilienthttp.ErrRateLimited))
			continue
		}
		_ = resp.Body.Close()
		fmt.Println(resp.Status)
	}
	fmt.Println("requests:", api.Total())
	// Output:
	// 200 OK
	// rate limited: true
	// requests: 1
}

// lent is a file of the caller while it is uploaded.
type lent struct {
	mu    sync.Mutex
	file  io.ReadSeeker
	begin int64
	ended bool
}

func (l *lent) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return 0, os.ErrClosed
	}
	return l.file.Read(p)
}

// rewind is the GetBody of the request. The caller closes the file.
func (l *lent) rewind() (io.ReadCloser, error) {
	_, err := l.file.Seek(l.begin, io.SeekStart)
	return io.NopCloser(l), err
}

// end returns the file to the caller. net/http may still read the body of a call that has failed.
func (l *lent) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// Upload sends a file from its current position on, and rewinds it for each attempt.
func (c *Client) Upload(ctx context.Context, file io.ReadSeeker) error {
	begin, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	body := &lent{file: file, begin: begin}
	defer body.end()
	first, err := body.rewind()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.BaseURL+"/v1/files", first)
	if err != nil {
		return err
	}
	req.ContentLength = end - begin
	req.GetBody = body.rewind
	req.Header.Set("Authorization", "Bearer "+c.APIKey)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("payments: status %d", resp.StatusCode)
	}
	return nil
}

// A file of the caller is uploaded. The API has read the first attempt to its end, and its response is lost.
func ExampleClient_upload() {
	files := &faulttest.Idempotent{}
	api := &faulttest.Server{Host: "api.payments.example", InMemory: true, Script: faulttest.Sequence(faulttest.LoseResponse(files), files)}
	api.Start(nil)
	defer api.Close()

	client := NewWithClient("secret", api.Client())
	client.BaseURL = api.URL
	file := strings.NewReader("the header, and the rest")
	if _, err := file.Seek(12, io.SeekStart); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Upload(context.Background(), file))
	for _, request := range api.Requests() {
		fmt.Printf("%q\n", request.Body)
	}
	fmt.Println("files:", len(files.Executions()))
	// Output:
	// <nil>
	// "and the rest"
	// "and the rest"
	// files: 1
}

// A request must be sent once, whatever happens. An empty body without GetBody keeps net/http from sending it again by
// itself when the server has closed the reused connection.
func ExampleWithSingleAttempt() {
	api := faulttest.NewInMemory(nil, faulttest.Sequence(faulttest.Status(200), faulttest.CloseAfterRead))
	defer api.Close()
	client := &http.Client{Transport: &resilienthttp.Transport{Base: api.Transport()}}
	for range 2 {
		ctx := resilienthttp.WithSingleAttempt(context.Background())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL+"/status", io.NopCloser(strings.NewReader("")))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println("failed:", resilienthttp.ErrorType(err))
			continue
		}
		_ = resp.Body.Close()
		fmt.Println(resp.Status)
	}
	fmt.Println("requests:", api.Total())
	// Output:
	// 200 OK
	// failed: eof
	// requests: 2
}
