package resilienthttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

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

// A queue retries its jobs, so each call of a job makes one attempt.
func ExampleWithSingleAttempt() {
	api := faulttest.New(nil, faulttest.Status(http.StatusInternalServerError))
	defer api.Close()

	ctx := resilienthttp.WithSingleAttempt(context.Background())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, http.NoBody)
	resp, err := resilienthttp.NewClient().Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, api.Total(), resilienthttp.Attempts(resp)[0].StopReason)
	// Output: 500 1 another layer owns retries
}
