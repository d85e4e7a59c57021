package resilienthttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// The zero Transport is ready to use. This payment API loses its first response. The retry has
// the same key, so the API makes one charge.
func Example() {
	charges := &faulttest.Idempotent{Handler: faulttest.OK(`{"status":"succeeded"}`)}
	api := faulttest.New(nil, faulttest.Sequence(faulttest.LoseResponse(charges), charges))
	defer api.Close()

	client := &http.Client{Transport: &resilienthttp.Transport{}}
	resp, err := client.Post(api.URL+"/charges", "application/json", strings.NewReader(`{"amount":100}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body))
	fmt.Println("attempts:", len(resilienthttp.Attempts(resp)), "charges:", len(charges.Executions()))
	// Output:
	// 200 {"status":"succeeded"}
	// attempts: 2 charges: 1
}

// A business key identifies one order, across crashes and restarts of the caller.
func ExampleWithIdempotencyKey() {
	api := faulttest.New(nil, faulttest.Status(http.StatusCreated))
	defer api.Close()

	ctx := resilienthttp.WithIdempotencyKey(context.Background(), "comp1:invoice:001")
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, api.URL, strings.NewReader("{}"))
	resp, err := resilienthttp.NewClient().Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(api.Requests()[0].Method, api.Requests()[0].Key)
	// Output: POST comp1:invoice:001
}

// One call can have its own policy.
func ExampleWithPolicy() {
	api := faulttest.New(nil, faulttest.Status(http.StatusInternalServerError))
	defer api.Close()

	ctx := resilienthttp.WithPolicy(context.Background(), resilienthttp.Policy{
		MaxAttempts: 2,
		Backoff:     resilienthttp.Constant(time.Millisecond),
	})
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, nil)
	resp, err := resilienthttp.NewClient().Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	last := resilienthttp.Attempts(resp)[1]
	fmt.Println(resp.StatusCode, api.Total(), last.Verdict, last.StopReason)
	// Output: 500 2 transient no retries left
}

// The error code in the body decides: a retry cannot succeed after this quota. The caller still
// reads the whole body.
func ExamplePolicy_classifyBody() {
	api := faulttest.New(nil, faulttest.Reply{Status: http.StatusTooManyRequests, Body: `{"code":"monthly_limit"}`})
	defer api.Close()

	client := &http.Client{Transport: &resilienthttp.Transport{Policy: resilienthttp.Policy{
		ClassifyBody: func(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
			var failure struct{ Code string }
			if json.Unmarshal(body, &failure) == nil && failure.Code == "monthly_limit" {
				return resilienthttp.VerdictPermanent
			}
			return resilienthttp.VerdictDefault
		},
	}}}
	resp, err := client.Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body), api.Total())
	// Output: 429 {"code":"monthly_limit"} 1
}

// Only some hosts support keys. Other hosts get none, and their POSTs are not retried.
func ExampleIdempotency_hosts() {
	bank, mail := faulttest.New(nil, faulttest.Status(http.StatusCreated)), faulttest.New(nil, faulttest.Status(http.StatusBadGateway))
	defer bank.Close()
	defer mail.Close()

	client := &http.Client{Transport: &resilienthttp.Transport{Idempotency: resilienthttp.Idempotency{
		Hosts: []string{strings.TrimPrefix(bank.URL, "http://")},
	}}}
	for _, api := range []*faulttest.Server{bank, mail} {
		resp, err := client.Post(api.URL, "application/json", strings.NewReader("{}"))
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode, "key:", api.Requests()[0].Key != "", "requests:", api.Total())
	}
	// Output:
	// 201 key: true requests: 1
	// 502 key: false requests: 1
}

// A call without a response returns an *Error. errors.Is finds the reason and the cause.
func ExampleError() {
	transport := &resilienthttp.Transport{
		Policy: resilienthttp.Policy{AttemptTimeout: time.Millisecond, MaxAttempts: -1},
	}
	api := faulttest.New(nil, faulttest.Hang)
	defer api.Close()

	_, err := (&http.Client{Transport: transport}).Get(api.URL)
	if failed, ok := errors.AsType[*resilienthttp.Error](err); ok {
		fmt.Println(failed.Reason)
		fmt.Println(errors.Is(err, resilienthttp.ErrAttemptTimeout), errors.Is(err, context.DeadlineExceeded), failed.Timeout())
		fmt.Println(len(failed.Attempts), failed.Attempts[0].StopReason)
	}
	// Output:
	// attempt timed out
	// true true true
	// 1 no retries left
}

// LogTrace writes structured records. They have no path, query, header value or body.
func ExampleLogTrace() {
	api := faulttest.New(nil, faulttest.Status(http.StatusTeapot))
	defer api.Close()

	kept := map[string]bool{"msg": true, "http.request.method": true, "attempt": true, "http.response.status_code": true, "verdict": true, "attempts": true}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if kept[a.Key] {
				return a
			}
			return slog.Attr{} // times, ports and latencies differ from run to run
		},
	}))
	client := &http.Client{Transport: &resilienthttp.Transport{Trace: resilienthttp.LogTrace(logger)}}
	resp, err := client.Get(api.URL + "/pots?secret=1")
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	// Output:
	// msg="attempt done" http.request.method=GET attempt=1 verdict=permanent http.response.status_code=418
	// msg="call done" http.request.method=GET attempts=1 http.response.status_code=418
}

// Handler gives the handler the caller's deadline. A Transport that is called with the request's
// context sends the remaining time.
func ExampleDeadlineHandler() {
	handler := resilienthttp.DeadlineHandler{Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		deadline, _ := r.Context().Deadline()
		_, _ = fmt.Fprint(w, time.Until(deadline).Round(10*time.Second))
	}), Max: time.Minute}
	api := httptest.NewServer(handler)
	defer api.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, nil)
	resp, err := resilienthttp.NewClient().Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(os.Stdout, resp.Body)
	// Output: 10s
}
