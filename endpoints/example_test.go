package endpoints_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// The first region dies between two calls. The second call goes on at the other region, at once and
// with the same response.
func ExampleTransport() {
	frankfurt, dublin := faulttest.New(nil, faulttest.OK("order 17")), faulttest.New(nil, faulttest.OK("order 17"))
	defer frankfurt.Close()
	defer dublin.Close()
	first, _ := url.Parse(frankfurt.URL)
	second, _ := url.Parse(dublin.URL)

	client := &http.Client{Transport: &endpoints.Transport{
		Endpoints: []endpoints.Endpoint{{Name: "frankfurt", URL: first}, {Name: "dublin", URL: second}},
	}}
	for call := 1; call <= 2; call++ {
		resp, err := client.Get(frankfurt.URL + "/orders/17")
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		fmt.Printf("%s\n", body)
		for _, attempt := range resilienthttp.Attempts(resp) {
			fmt.Println("  attempt", attempt.Number, "to", attempt.Endpoint)
		}
		frankfurt.Close()
	}
	// Output:
	// order 17
	//   attempt 1 to frankfurt
	// order 17
	//   attempt 1 to frankfurt
	//   attempt 2 to dublin
}

// A payment is in doubt, because its response is lost. The repetition goes to the same endpoint, which knows
// the key.
func ExampleWithEndpoint() {
	bank := new(faulttest.Idempotent)
	frankfurt, dublin := faulttest.New(nil, faulttest.Sequence(faulttest.LoseResponse(bank), bank)), faulttest.New(nil, faulttest.OK(""))
	defer frankfurt.Close()
	defer dublin.Close()
	first, _ := url.Parse(frankfurt.URL)
	second, _ := url.Parse(dublin.URL)
	client := &http.Client{Transport: &endpoints.Transport{
		Endpoints: []endpoints.Endpoint{{Name: "frankfurt", URL: first}, {Name: "dublin", URL: second}},
		Transport: &resilienthttp.Transport{Policy: resilienthttp.Policy{MaxAttempts: -1}},
	}}

	ctx := resilienthttp.WithIdempotencyKey(context.Background(), "invoice:001")
	pay := func(ctx context.Context) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, frankfurt.URL+"/charges", strings.NewReader("{}"))
		if err != nil {
			return nil, err
		}
		return client.Do(req)
	}
	_, err := pay(ctx)
	failed, ok := errors.AsType[*resilienthttp.Error](err)
	if !ok || failed.NotSent() {
		fmt.Println("not in doubt:", err)
		return
	}
	last := failed.Attempts[len(failed.Attempts)-1] // failed is a *resilienthttp.Error
	ctx = endpoints.WithEndpoint(ctx, last.Endpoint)
	resp, err := pay(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, "charges:", bank.Executions()["invoice:001"])
	// Output: 201 charges: 1
}

// Two keys of one API. The quota of the first key is used up after two requests, so the third request
// has the second key. The program sets no Authorization.
func ExampleEndpoint() {
	quota := &faulttest.Quota{Limit: 2, Window: time.Hour, Dialect: faulttest.OpenAI, KeyFunc: faulttest.Credential}
	api := faulttest.New(nil, quota)
	defer api.Close()
	base, _ := url.Parse(api.URL + "/v1")

	client := &http.Client{Transport: &endpoints.Transport{
		Endpoints: []endpoints.Endpoint{
			{Name: "team-a", URL: base, Header: http.Header{"Authorization": {"Bearer sk-a"}}},
			{Name: "team-b", URL: base, Header: http.Header{"Authorization": {"Bearer sk-b"}}},
		},
	}}
	for range 4 {
		resp, err := client.Post(api.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m"}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
	}
	for _, r := range api.Requests() {
		fmt.Println(r.URI, r.Header.Get("Authorization"), r.Status)
	}
	// Output:
	// /v1/chat/completions Bearer sk-a 200
	// /v1/chat/completions Bearer sk-a 200
	// /v1/chat/completions Bearer sk-b 200
	// /v1/chat/completions Bearer sk-b 200
}
