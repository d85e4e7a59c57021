package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// A client that got no response sends its request again. The second request is not executed:
// it gets the first response.
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
	charges.Operation = func(*http.Request) string { return "charge" } // a constant: a renamed route keeps its keys

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

// A queue delivers a message twice. The message is processed once.
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

// A handler passes a key on to another service. The key is the same for each execution of
// the operation, and different for each tenant.
func ExampleFromContext() {
	capture := func(ctx context.Context, req *http.Request) *http.Request {
		if e, ok := idempotency.FromContext(ctx); ok {
			ctx = resilienthttp.WithIdempotencyKey(ctx, e.KeyFor("capture"))
		}
		return req.WithContext(ctx)
	}
	charges := idempotency.NewHandler(new(idempotency.Memory), tenantOf, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, ok := idempotency.FromContext(r.Context())
		capture(r.Context(), httptest.NewRequest(http.MethodPost, "https://bank.example/captures", http.NoBody))
		fmt.Println(ok, len(e.KeyFor("capture")), e.KeyFor("capture") == e.KeyFor("refund"))
		w.WriteHeader(http.StatusCreated)
	}))
	r := httptest.NewRequest(http.MethodPost, "/charges", http.NoBody)
	r.Header.Set("Idempotency-Key", "invoice:1")
	charges.ServeHTTP(httptest.NewRecorder(), r)
	// Output:
	// true 40 false
}

func tenantOf(*http.Request) (string, error) { return "acme", nil }

// bank is a service that can be asked for a charge.
type bank map[string]string

// Find returns the receipt of the charge with the key, if there is one.
func (b bank) Find(_ context.Context, key string) (charged bool, receipt idempotency.Result, err error) {
	body, charged := b[key]
	return charged, idempotency.Result{Code: http.StatusCreated, Body: []byte(body)}, nil
}

// reconcile resolves the unknown records of all scopes.
func reconcile(ctx context.Context, store idempotency.Store, bank bank) error {
	for record, err := range store.Unknown(ctx, "") {
		if err != nil {
			return err
		}
		charged, receipt, err := bank.Find(ctx, record.KeyFor("capture"))
		switch {
		case err != nil:
			continue // still unknown
		case charged: // the next request with the key gets the receipt
			outcome := idempotency.Outcome{Status: idempotency.Completed, Result: receipt}
			err = store.Complete(ctx, record.Lease(), outcome)
		default: // the next request with the key is executed
			err = store.Release(ctx, record.Lease())
		}
		if err != nil && !errors.Is(err, idempotency.ErrLeaseLost) {
			return err
		}
	}
	return nil
}

// A reconciler asks the bank about records with an unknown outcome.
func Example_reconcile() {
	ledger := bank{}
	store := new(idempotency.Memory)
	charges := idempotency.NewHandler(store, tenantOf, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, _ := idempotency.FromContext(r.Context())
		ledger[e.KeyFor("capture")] = "receipt 1"
		w.WriteHeader(http.StatusGatewayTimeout) // the bank has charged, and its response was lost
	}))
	send := func() {
		r := httptest.NewRequest(http.MethodPost, "/charges", http.NoBody)
		r.Header.Set("Idempotency-Key", "invoice:1")
		w := httptest.NewRecorder()
		charges.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	send()
	send()
	fmt.Println(reconcile(context.Background(), store, ledger))
	send()
	// Output:
	// 504
	// 409
	// <nil>
	// 201
}
