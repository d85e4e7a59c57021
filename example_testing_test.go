package resilienthttp_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

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
				resp, err := client.Post(srv.URL+"/charges", "application/json", strings.NewReader(`{"amount":100}`))
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
