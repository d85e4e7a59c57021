package resilienthttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/config"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/quotastore"
	"github.com/resilienthttp/resilienthttp/vendors"
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

// The header and the hosts of an API that honors keys. Other hosts get none, and their POSTs are not retried.
func ExampleIdempotency_hosts() {
	bank, mail := faulttest.New(nil, faulttest.Status(http.StatusCreated)), faulttest.New(nil, faulttest.Status(http.StatusBadGateway))
	defer bank.Close()
	defer mail.Close()

	host := strings.TrimPrefix(bank.URL, "http://")

	client := &http.Client{Transport: &resilienthttp.Transport{
		Idempotency: resilienthttp.Idempotency{
			Header: "PayPal-Request-Id",
			Hosts:  []string{host}, // such as "api-m.paypal.com" or "*.example.com"
		},
	}}
	for _, api := range []*faulttest.Server{bank, mail} {
		resp, err := client.Post(api.URL, "application/json", strings.NewReader("{}"))
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		key := api.Requests()[0].Header.Get("PayPal-Request-Id")
		fmt.Println(resp.StatusCode, "characters of the key:", len(key), "requests:", api.Total())
	}
	// Output:
	// 201 characters of the key: 36 requests: 1
	// 502 characters of the key: 0 requests: 1
}

// The fixed limit of one request a minute rejects the second call. The error has the time for
// another call.
func ExampleError_notBefore() {
	api := faulttest.New(nil, faulttest.OK(""))
	defer api.Close()

	limit := &resilienthttp.RateLimit{Limit: 1. / 60, MaxWait: time.Second}
	client := &http.Client{Transport: &resilienthttp.Transport{RateLimit: limit}}
	for range 2 {
		resp, err := client.Get(api.URL)
		if failed, ok := errors.AsType[*resilienthttp.Error](err); ok && !failed.NotBefore.IsZero() {
			fmt.Println("rejected:", failed.Reason, "not sent:", failed.NotSent())
		}
		if err == nil {
			_ = resp.Body.Close()
			fmt.Println(resp.StatusCode)
		}
	}
	// Output:
	// 200
	// rejected: rate limited not sent: true
}

// Package config reads what operators set in JSON. Fields that the text does not name keep the
// program's values.
func ExampleTransport() {
	transport := &resilienthttp.Transport{
		Policy: resilienthttp.Policy{MaxAttempts: 3, AttemptTimeout: 5 * time.Second},
	}
	text := strings.NewReader(`{
		"Policy":    {"AttemptTimeout": "2s", "Backoff": {"Strategy": "FullJitter", "Base": "100ms", "Max": "10s"}},
		"RateLimit": {"Limit": 50},
		"Hedge":     {}
	}`)
	err := config.Read(text, transport) // it calls Validate
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(transport.Policy.MaxAttempts, transport.Policy.AttemptTimeout, transport.RateLimit.Limit, transport.Hedge != nil)
	// Output: 3 2s 50 true
}

// Validate names all invalid fields. Call it when the program starts.
func ExampleTransport_Validate() {
	transport := &resilienthttp.Transport{
		Policy:  resilienthttp.Policy{AttemptTimeout: 5},  // 5 ns: the unit is missing
		Breaker: &resilienthttp.Breaker{FailureRatio: 50}, // a ratio, not a percentage
	}
	err := transport.Validate()
	for _, field := range []string{"Policy.AttemptTimeout", "Breaker.FailureRatio", "Breaker.Window"} {
		fmt.Println(field, "is invalid:", strings.Contains(err.Error(), field))
	}
	// Output:
	// Policy.AttemptTimeout is invalid: true
	// Breaker.FailureRatio is invalid: true
	// Breaker.Window is invalid: false
}

// WithPolicy replaces the whole policy of a call: change a copy of the Transport's.
func ExampleWithPolicy() {
	api := faulttest.New(nil, faulttest.Status(http.StatusInternalServerError))
	defer api.Close()

	policy := resilienthttp.Policy{Backoff: resilienthttp.Constant(time.Millisecond)}
	transport := &resilienthttp.Transport{Policy: policy}

	once := policy // that of &resilienthttp.Transport{Policy: policy}
	once.MaxAttempts = 2
	ctx := resilienthttp.WithPolicy(context.Background(), once)

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, "attempts:", api.Total())
	// Output: 500 attempts: 2
}

// The number of attempts and the waits are known beforehand. Budget and breaker still protect the server.
func ExampleTransport_fixedSchedule() {
	api := faulttest.New(nil, faulttest.Status(http.StatusInternalServerError))
	defer api.Close()

	transport := &resilienthttp.Transport{
		Policy: resilienthttp.Policy{
			MaxAttempts:    3,
			Backoff:        resilienthttp.FullJitter(200*time.Millisecond, 2*time.Second),
			AttemptTimeout: 10 * time.Second, // so a slow GET gets no second attempt
		},
		Budget:  &resilienthttp.Budget{Static: true},
		Breaker: &resilienthttp.Breaker{Static: true},
	}

	resp, err := (&http.Client{Transport: transport}).Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, "attempts:", api.Total())
	// Output: 500 attempts: 3
}

// MaxAge renews connections, so that a client follows DNS and rolling deploys.
func ExampleConnections() {
	// It follows DNS, and rolling deploys.
	transport := &resilienthttp.Transport{Base: &resilienthttp.Connections{MaxAge: 10 * time.Minute}}
	fmt.Println(transport.Validate())
	// Output: <nil>
}

// Classify makes a 404 retryable, because a replica may not have a new record yet.
func ExamplePolicy_classify() {
	api := faulttest.New(nil, faulttest.Sequence(faulttest.Status(http.StatusNotFound), faulttest.OK(`{"id":1}`)))
	defer api.Close()

	client := &http.Client{Transport: &resilienthttp.Transport{Policy: resilienthttp.Policy{
		MaxAttempts: 3,
		Classify: func(a *resilienthttp.Attempt) resilienthttp.Verdict {
			if a.Response != nil && a.Response.StatusCode == http.StatusNotFound {
				return resilienthttp.VerdictTransient // a replica may not have the record yet
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
	_, _ = io.Copy(os.Stdout, resp.Body)
	for _, attempt := range resilienthttp.Attempts(resp) {
		fmt.Println("\nattempt", attempt.Number, attempt.Response.StatusCode, attempt.Verdict)
	}
	// Output:
	// {"id":1}
	// attempt 1 404 transient
	//
	// attempt 2 200 success
}

// An API may say in words of its own that it has executed nothing: the first one answers 400 above its rate, the second one
// sends a SOAP fault, which has the status 500. So their POSTs are repeated, although they have no key.
func ExamplePolicy_notExecuted() {
	executedNothing := func(a *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
		switch status := a.Response.StatusCode; {
		case status == http.StatusBadRequest && bytes.Contains(body, []byte(`"code":"rate_exceeded"`)):
			a.NotExecuted = true // its page: "the request was not processed"
			a.RetryAfter = 2 * time.Second
			return resilienthttp.VerdictThrottled
		case status == http.StatusInternalServerError && bytes.Contains(body, []byte("<faultcode>Server.Busy</faultcode>")):
			a.NotExecuted = true // its page: "the service has refused the message"
			return resilienthttp.VerdictTransient
		}
		return resilienthttp.VerdictDefault // any other 500 is in doubt
	}
	client := &http.Client{Transport: &resilienthttp.Transport{
		Idempotency: resilienthttp.Idempotency{Disabled: true}, // the APIs honour no keys
		Policy:      resilienthttp.Policy{ClassifyBody: executedNothing},
	}}
	for _, refusal := range []faulttest.Reply{
		{Status: http.StatusBadRequest, Body: `{"code":"rate_exceeded"}`},
		{Status: http.StatusInternalServerError, Body: `<Fault><faultcode>Server.Busy</faultcode></Fault>`},
		{Status: http.StatusInternalServerError, Body: `<Fault><faultcode>Server.Database</faultcode></Fault>`},
	} {
		api := faulttest.New(nil, faulttest.Sequence(refusal, faulttest.OK("")))
		resp, err := client.Post(api.URL, "text/xml", strings.NewReader("<Order/>"))
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode, len(resilienthttp.Attempts(resp)), resilienthttp.InDoubt(resp, err))
		api.Close()
	}
	// Output:
	// 200 2 false
	// 200 2 false
	// 500 1 true
}

// Full jitter replaces the default waits.
func ExamplePolicy_backoff() {
	api := faulttest.New(nil, faulttest.Sequence(faulttest.Status(http.StatusBadGateway), faulttest.OK("")))
	defer api.Close()

	client := &http.Client{Transport: &resilienthttp.Transport{Policy: resilienthttp.Policy{
		MaxAttempts:   4,
		Backoff:       resilienthttp.FullJitter(50*time.Millisecond, 10*time.Second),
		MaxRetryAfter: 5 * time.Minute,
	}}}
	resp, err := client.Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	wait := resilienthttp.Attempts(resp)[0].RetryWait
	fmt.Println(resp.StatusCode, wait < time.Second)
	// Output: 200 true
}

// Transports share a budget by its pointer. All their retries to a host then use one bucket.
func ExampleBudget_shared() {
	api := faulttest.New(nil, faulttest.Status(http.StatusInternalServerError))
	defer api.Close()

	budget := &resilienthttp.Budget{Ratio: 0.2, Burst: 3}
	reads := &resilienthttp.Transport{Budget: budget}
	writes := &resilienthttp.Transport{Budget: budget}

	for _, transport := range []*resilienthttp.Transport{reads, writes} {
		transport.Policy.Backoff = resilienthttp.Constant(time.Millisecond)
		transport.Breaker = &resilienthttp.Breaker{MaxWait: -1} // otherwise calls without tokens wait for the server
		resp, err := (&http.Client{Transport: transport}).Get(api.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println("attempts:", len(resilienthttp.Attempts(resp)))
	}
	// Output:
	// attempts: 6
	// attempts: 2
}

// Without a budget each call may make all its attempts, however many calls fail.
func ExampleBudget_unlimited() {
	api := faulttest.New(nil, faulttest.Status(http.StatusInternalServerError))
	defer api.Close()

	unlimited := &resilienthttp.Transport{Budget: &resilienthttp.Budget{Ratio: -1}} // retries have no limit

	unlimited.Policy.Backoff = resilienthttp.Constant(time.Millisecond)
	unlimited.Breaker = &resilienthttp.Breaker{FailureRatio: -1}
	for range 4 {
		resp, err := (&http.Client{Transport: unlimited}).Get(api.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println("attempts:", len(resilienthttp.Attempts(resp)))
	}
	// Output:
	// attempts: 6
	// attempts: 6
	// attempts: 6
	// attempts: 6
}

// A circuit opens when 90 % of 20 results are failures. The next call is rejected without a
// request.
func ExampleBreaker() {
	const takes = 5 * time.Millisecond
	served, failed := faulttest.Reply{Status: http.StatusOK, Delay: takes}, faulttest.Reply{Status: http.StatusInternalServerError, Delay: takes}
	api := faulttest.New(nil, faulttest.Sequence(served, served, failed))
	defer api.Close()

	transport := &resilienthttp.Transport{
		Breaker: &resilienthttp.Breaker{
			FailureRatio: 0.9, // the default is 1: nothing works
			Cooldown:     5 * time.Second,
			MaxCooldown:  time.Minute,
			MaxWait:      -1, // calls fail at once while the circuit is open
			OnChange: func(change resilienthttp.BreakerChange) {
				fmt.Println("circuit:", change.From, "→", change.To)
			},
		},
		Policy: resilienthttp.Policy{MaxAttempts: -1}, // no retries: each call has one result
	}
	client := &http.Client{Transport: transport}
	for range 21 {
		resp, err := client.Get(api.URL)
		if errors.Is(err, resilienthttp.ErrBreakerOpen) {
			fmt.Println("rejected; wait:", time.Until(resilienthttp.NotBefore(resp, err)) > 4*time.Second)
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
	}
	fmt.Println("requests:", api.Total()) // ten failures after two successes: that is no chance
	// Output:
	// circuit: closed → open
	// rejected; wait: true
	// requests: 12
}

// A fixed limit of the client's own. With a negative MaxWait no call waits.
func ExampleRateLimit() {
	api := faulttest.New(nil, faulttest.Status(http.StatusOK))
	defer api.Close()

	transport := &resilienthttp.Transport{
		RateLimit: &resilienthttp.RateLimit{
			Limit:   5, // requests per second, retries and hedges included
			Burst:   2, // at most 2 + 5 × s
			MaxWait: -1,
		},
	}
	client := &http.Client{Transport: transport}
	for range 3 {
		resp, err := client.Get(api.URL)
		if errors.Is(err, resilienthttp.ErrRateLimited) {
			fmt.Println("rejected; wait at most 200ms:", time.Until(resilienthttp.NotBefore(resp, err)) <= 200*time.Millisecond)
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// 200
	// 200
	// rejected; wait at most 200ms: true
}

// Processes share one quota by a store. Here both Transports are in one process and use a
// store in memory.
func ExampleRateLimit_shared() {
	api := faulttest.New(nil, faulttest.Status(http.StatusOK))
	defer api.Close()

	store := &quotastore.Memory{} // with several processes: redisstore.Store
	for range 2 {
		limit := &resilienthttp.RateLimit{Limit: 1, Burst: 10, Shared: store} // equal in all processes
		transport := &resilienthttp.Transport{RateLimit: limit}
		resp, err := (&http.Client{Transport: transport}).Get(api.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		quota := transport.State().Scopes[0].Quotas[0]
		fmt.Println(resp.StatusCode, "remaining:", quota.Remaining, "of", quota.Limit)
	}
	// Output:
	// 200 remaining: 9 of 10
	// 200 remaining: 8 of 10
}

// The Transport sends the priority to the server in X-Request-Priority.
func ExampleWithPriority() {
	api := faulttest.New(nil, faulttest.Status(http.StatusOK))
	defer api.Close()
	client := resilienthttp.NewClient()

	ctx := resilienthttp.WithPriority(context.Background(), resilienthttp.PriorityBatch)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(api.Requests()[0].Header.Get("X-Request-Priority"))
	// Output: batch
}

// Each workspace has quotas of its own.
func ExampleRateLimit_key() {
	transport := &resilienthttp.Transport{
		RateLimit: &resilienthttp.RateLimit{
			Key: func(r *http.Request) string { return r.Header.Get("X-Workspace") },
		},
	}
	fmt.Println(transport.Validate())
	// Output: <nil>
}

// Without keys a POST is not retried after a 502, because the server may have done the work.
func ExampleIdempotency() {
	api := faulttest.New(nil, faulttest.Status(http.StatusBadGateway))
	defer api.Close()

	transport := &resilienthttp.Transport{
		Idempotency: resilienthttp.Idempotency{Disabled: true}, // this API does not honor keys
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Post(api.URL, "application/json", strings.NewReader(`{"amount":100}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, "attempts:", api.Total(), "key:", api.Requests()[0].Key != "")
	fmt.Println(resilienthttp.Attempts(resp)[0].StopReason)
	// Output:
	// 502 attempts: 1 key: false
	// request is not idempotent
}

// The caller's own key makes two calls one operation: here the caller repeats the call after
// its process was restarted, and the server executes it once.
func ExampleWithIdempotencyKey() {
	charges := &faulttest.Idempotent{}
	api := faulttest.New(nil, charges)
	defer api.Close()

	for range 2 { // before and after a restart
		client := resilienthttp.NewClient()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		ctx = resilienthttp.WithIdempotencyKey(ctx, "comp1:invoice:001")
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, api.URL, strings.NewReader(`{"amount":100}`))
		if err != nil {
			fmt.Println(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
		} else {
			_ = resp.Body.Close()
			fmt.Println(resp.StatusCode)
		}
		cancel()
	}
	fmt.Println("charges:", len(charges.Executions()))
	// Output:
	// 201
	// 201
	// charges: 1
}

// Each request of the call sends the deadline of its context. DeadlineHandler gives it to the server.
func ExampleDeadlineHandler() {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		deadline, _ := r.Context().Deadline()
		fmt.Println("received", r.Header.Get("X-Request-Timeout-Ms") != "", time.Until(deadline).Round(10*time.Second))
		w.WriteHeader(http.StatusNoContent)
	})
	withDeadline := resilienthttp.DeadlineHandler{Next: handler, Max: time.Minute}
	server := httptest.NewServer(withDeadline)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
	resp, err := resilienthttp.NewClient().Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output:
	// received true 30s
	// 204
}

// AttemptTimeout limits the time to the response headers, ReadTimeout each Read of the body,
// and the context the whole call.
func ExamplePolicy_timeouts() {
	api := faulttest.New(nil, faulttest.OK("done"))
	defer api.Close()

	client := &http.Client{Transport: &resilienthttp.Transport{Policy: resilienthttp.Policy{
		AttemptTimeout: 10 * time.Second,
		ReadTimeout:    30 * time.Second,
	}}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, http.NoBody)
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	at, _ := time.Parse(time.RFC3339, api.Requests()[0].Header.Get("X-Request-Deadline"))
	fmt.Println(resp.StatusCode, time.Until(at).Round(10*time.Second)) // the earlier of both limits
	// Output: 200 10s
}

// A long poll is slow by design. A negative AttemptTimeout prevents a second attempt.
func ExampleWithPolicy_longPoll() {
	api := faulttest.New(nil, faulttest.Reply{Delay: 50 * time.Millisecond, Body: "event"})
	defer api.Close()

	policy := resilienthttp.Policy{MaxRetryAfter: 10 * time.Second}
	transport := &resilienthttp.Transport{Policy: policy}

	longPoll := policy
	longPoll.AttemptTimeout = -1 // slow by design
	ctx := resilienthttp.WithPolicy(context.Background(), longPoll)
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, http.NoBody)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, "requests:", api.Total())
	// Output: 200 requests: 1
}

// The first request is slow. After the Delay a hedge is sent, and its response wins.
func ExampleHedge() {
	api := faulttest.New(nil, faulttest.Sequence(
		faulttest.Reply{Delay: time.Minute, Body: "slow"},
		faulttest.OK("quick"),
	))
	defer api.Close()

	client := &http.Client{Transport: &resilienthttp.Transport{
		Hedge: &resilienthttp.Hedge{Delay: 50 * time.Millisecond},
	}}
	resp, err := client.Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(string(body))
	for _, attempt := range resilienthttp.Attempts(resp) {
		fmt.Println("attempt", attempt.Number, "hedge:", attempt.Hedge, "response:", attempt.Response != nil)
	}
	// Output:
	// quick
	// attempt 1 hedge: false response: false
	// attempt 1 hedge: true response: true
}

// The profile of a language model, with a limit for its first event of content. The last line makes a completion that is in doubt
// an error of the caller again.
func ExampleStream_vendor() {
	transport := vendors.Anthropic()
	transport.Policy.Stream.FirstEvent = 8 * time.Second // without content until then: the next endpoint

	transport.Policy.Idempotent = nil

	fmt.Println(transport.Validate())
	// Output: <nil>
}

// A Stream for an API without a profile.
func ExampleStream() {
	policy := resilienthttp.Policy{
		Idempotent: func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/completions") },
		Stream: &resilienthttp.Stream{Classify: func(name string, data []byte) resilienthttp.Verdict {
			switch name {
			case "ping":
				return resilienthttp.VerdictPending
			case "error":
				return resilienthttp.VerdictTransient
			}
			return resilienthttp.VerdictDefault // content
		}},
	}
	fmt.Println(policy.Stream.Classify("error", nil))
	// Output: transient
}

// An existing http.Client gets a Transport around its RoundTripper.
func ExampleTransport_migration() {
	api := faulttest.New(nil, faulttest.Sequence(faulttest.Status(http.StatusBadGateway), faulttest.OK("")))
	defer api.Close()
	oldTransport := http.DefaultTransport.(*http.Transport).Clone()
	client := &http.Client{Transport: oldTransport}

	client.Transport = &resilienthttp.Transport{Base: oldTransport}

	resp, err := client.Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, len(resilienthttp.Attempts(resp)))
	// Output: 200 2
}

// A test that counts attempts needs no budget, no breaker and fixed waits.
func ExampleTransport_fixedAttempts() {
	api := faulttest.New(nil, faulttest.Status(http.StatusServiceUnavailable))
	defer api.Close()

	transport := &resilienthttp.Transport{
		Policy:  resilienthttp.Policy{MaxAttempts: 3, Backoff: resilienthttp.Constant(time.Millisecond)},
		Budget:  &resilienthttp.Budget{Ratio: -1},         // no limit
		Breaker: &resilienthttp.Breaker{FailureRatio: -1}, // never opens
	}

	client := &http.Client{Transport: transport}
	for range 10 {
		resp, err := client.Get(api.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
	}
	fmt.Println("requests:", api.Total())
	// Output: requests: 30
}

// A large file is read again for each attempt, and never held in memory.
func ExampleTransport_largeFile() {
	api := faulttest.New(nil, faulttest.Sequence(faulttest.Status(http.StatusServiceUnavailable), faulttest.OK("stored")))
	defer api.Close()
	dir, err := os.MkdirTemp("", "upload")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // of an example
	path := filepath.Join(dir, "report.csv")
	if err := os.WriteFile(path, []byte("invoice,amount\n001,100\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	client := resilienthttp.NewClient()

	upload := func(ctx context.Context) (*http.Response, error) {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		info, err := file.Stat()
		if err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, api.URL, file)
		if err != nil {
			return nil, err
		}
		req.ContentLength = info.Size()
		req.GetBody = func() (io.ReadCloser, error) { return os.Open(path) } // for each retry
		return client.Do(req)
	}

	resp, err := upload(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, "attempts:", api.Total())
	// Output: 200 attempts: 2
}

func TestCharge(t *testing.T) {
	for name, script := range map[string]func(charges http.Handler) http.Handler{
		"503 with Retry-After: one retry": func(charges http.Handler) http.Handler {
			return faulttest.Sequence(faulttest.Unavailable(time.Minute, faulttest.HTTPDate), charges)
		},
		"lost response: one charge": func(charges http.Handler) http.Handler {
			return faulttest.Sequence(faulttest.LoseResponse(charges), charges)
		},
		"quota used up: retry after its reset": func(charges http.Handler) http.Handler {
			return faulttest.Sequence(faulttest.Throttled(faulttest.GitHub, time.Minute), charges)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // virtual time: a wait of a minute takes no time
				charges := new(faulttest.Idempotent)
				srv := faulttest.NewInMemory(t, script(charges))
				client := &http.Client{Transport: &resilienthttp.Transport{Base: srv.Transport()}}
				body := strings.NewReader(`{"amount":100}`)
				resp, err := client.Post(srv.URL+"/charges", "application/json", body)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				srv.AssertAttempts(t, 2)        // one call with two attempts
				srv.AssertKeys(t, 1)            // with the same idempotency key
				charges.AssertExactlyOnce(t, 1) // one charge
			})
		})
	}
}
