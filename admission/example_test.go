package admission_test

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/admission"
)

// Each account may send three requests an hour. Under overload, critical requests are served
// first.
func Example() {
	account := func(r *http.Request) (string, error) {
		name, _, ok := r.BasicAuth()
		if !ok {
			return "", errors.New("no account")
		}
		return name, nil
	}
	priorityOf := func(r *http.Request) resilienthttp.Priority {
		if r.URL.Path == "/pay" {
			return resilienthttp.PriorityCritical
		}
		return resilienthttp.PriorityDefault
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "served as ", resilienthttp.PriorityFromContext(r.Context()))
	})

	shedder := &admission.Shedder{Priority: priorityOf, Key: account}
	quota := &admission.Quota{Limit: 3, Window: time.Hour, Key: account}
	if err := errors.Join(shedder.Validate(), quota.Validate()); err != nil {
		log.Fatal(err)
	}
	handler := resilienthttp.DeadlineHandler{Next: shedder.Handler(quota.Handler(api))}

	for _, path := range []string{"/pay", "/list", "/list", "/pay"} {
		r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		r.SetBasicAuth("ann", "")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			fmt.Print(w.Code, " ", w.Body)
			continue
		}
		fmt.Println(w.Body, w.Header().Get("RateLimit-Policy"), w.Header()["Ratelimit"])
	}
	// Output:
	// served as critical "default";q=3;w=3600 ["default";r=2;t=1200]
	// served as default "default";q=3;w=3600 ["default";r=1;t=2400]
	// served as default "default";q=3;w=3600 ["default";r=0;t=3600]
	// 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The quota has been used up","status":429,"violated-policies":["default"]}
}

// A Quota also limits work that does not arrive by HTTP.
func ExampleQuota_Take() {
	mails := &admission.Quota{Name: "mails", Limit: 2, Window: 24 * time.Hour}
	for range 3 {
		result, err := mails.Take(httptest.NewRequest(http.MethodGet, "/", http.NoBody).Context(), "ann", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.OK, result.Remaining, result.RetryAfter.Round(time.Hour))
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 12h0m0s
}
