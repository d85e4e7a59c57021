package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// A client that got no answer sends its charge again. It is charged once, and gets
// the first response.
func ExampleHandler() {
	charged := 0
	charge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charged++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "charge %d", charged)
	})
	account := func(r *http.Request) (string, error) {
		if name, _, ok := r.BasicAuth(); ok {
			return name, nil
		}
		return "", errors.New("no account")
	}
	charges := idempotency.NewHandler(new(idempotency.Memory), account, charge)
	charges.Operation = func(*http.Request) string { return "charge" } // whatever the pattern will be called

	mux := http.NewServeMux()
	mux.Handle("POST /charges", charges)

	send := func(key, body string) {
		r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(body))
		r.Header.Set("Idempotency-Key", key)
		r.SetBasicAuth("ann", "")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code >= 400 {
			fmt.Println(w.Code)
			return
		}
		fmt.Printf("%d %s, replayed: %t\n", w.Code, w.Body, w.Header().Get("Idempotency-Replayed") != "")
	}
	send("comp1:invoice:001", "amount=100")
	send("comp1:invoice:001", "amount=100")
	send("comp1:invoice:001", "amount=999")
	send("comp1:invoice:002", "amount=100")
	fmt.Println(charged, "charges")
	// Output:
	// 201 charge 1, replayed: false
	// 201 charge 1, replayed: true
	// 422
	// 201 charge 2, replayed: false
	// 2 charges
}

// A queue delivers a message twice. It is worked on once.
func ExampleDo() {
	store := new(idempotency.Memory)
	receive := func(id, message string) {
		result, err := idempotency.Do(
			context.Background(), store, "comp1", "import-invoices", id, idempotency.NewFingerprint([]byte(message)),
			func(context.Context) (idempotency.Result, error) {
				fmt.Println("importing", message)
				return idempotency.Result{Reference: "invoices/1"}, nil
			},
		)
		fmt.Println(result.Reference, err)
	}
	receive("message 7", "invoice 001")
	receive("message 7", "invoice 001")
	receive("message 7", "invoice 002")
	// Output:
	// importing invoice 001
	// invoices/1 <nil>
	// invoices/1 <nil>
	//  idempotency: key was used with another fingerprint
}

// Work that must not be tried again says so.
func ExamplePermanent() {
	store := new(idempotency.Memory)
	for range 2 {
		_, err := idempotency.Do(context.Background(), store, "comp1", "import-invoices", "message 8", "",
			func(context.Context) (idempotency.Result, error) {
				fmt.Println("working")
				return idempotency.Result{}, idempotency.Permanent(errors.New("no such company"))
			})
		fmt.Println(err)
	}
	// Output:
	// working
	// no such company
	// no such company
}

// Work that called the bank does not know what a failure means. Where it does know,
// it says so, and is done again.
func ExampleRetryable() {
	store := new(idempotency.Memory)
	refused := errors.New("connection refused")
	for range 2 {
		_, err := idempotency.Do(context.Background(), store, "comp1", "pay-invoices", "message 9", "",
			func(context.Context) (idempotency.Result, error) {
				fmt.Println("paying")
				return idempotency.Result{}, idempotency.Retryable(refused) // not a byte has left
			})
		fmt.Println(err)
	}
	// Output:
	// paying
	// connection refused
	// paying
	// connection refused
}

// A route whose 502 says more than that of others: the gateway before the bank
// answers it when it could not connect.
func ExampleHandler_settle() {
	h := idempotency.NewHandler(new(idempotency.Memory),
		func(*http.Request) (string, error) { return "", nil },
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Println("paying", r.Header.Get("Idempotency-Key"))
			code, _ := strconv.Atoi(r.URL.Query().Get("gateway"))
			w.WriteHeader(code)
		}))
	h.Operation = func(*http.Request) string { return "pay" }
	h.Classify = func(code int) idempotency.Status {
		if code == http.StatusBadGateway {
			return idempotency.FailedRetryable
		}
		return 0 // the package's own policy
	}
	h.Trace = &idempotency.Trace{Unknown: func(e *idempotency.Event) { fmt.Println("find out about", e.Key) }}

	for _, code := range []string{"502", "504"} {
		for range 2 {
			r := httptest.NewRequest(http.MethodPost, "/payments?gateway="+code, http.NoBody)
			r.Header.Set("Idempotency-Key", "invoice "+code)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			fmt.Println(w.Code)
		}
	}
	// Output:
	// paying invoice 502
	// 502
	// paying invoice 502
	// 502
	// paying invoice 504
	// find out about invoice 504
	// 504
	// 409
}
