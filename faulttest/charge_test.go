package faulttest_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

// payer is the client of TestCharge, with retries and one key for each charge.
type payer struct {
	url  string
	http *http.Client
}

func (p *payer) charge(t *testing.T, key string) (err error) {
	wait := time.Minute
	for range 3 {
		var resp *http.Response
		resp, _, err = send(t, p.http, http.MethodPost, p.url+"/charges", `{"amount":100}`, "Idempotency-Key", key)
		if err == nil && resp.StatusCode < 500 {
			return nil
		}
		if err == nil {
			wait, _ = time.ParseDuration(strings.Join(resp.Header.Values("Retry-After"), "") + "s")
		}
		time.Sleep(wait)
	}
	return err
}

// A table-driven test as in docs/testing.md, of a client without a Transport.
func TestCharge(t *testing.T) {
	t.Parallel()
	sdk := func(url string, client *http.Client) *payer { return &payer{url, client} }
	for name, script := range map[string]func(charges http.Handler) http.Handler{
		"503 with Retry-After: one retry": func(ok http.Handler) http.Handler {
			return faulttest.Sequence(faulttest.Unavailable(time.Hour, faulttest.Seconds), ok)
		},
		"lost response: one charge": func(ok http.Handler) http.Handler { return faulttest.Sequence(faulttest.LoseResponse(ok), ok) },
		"outage of a minute: one retry": func(ok http.Handler) http.Handler {
			return faulttest.Script{{Until: time.Minute, Handler: faulttest.ResetBeforeRead}, {Handler: ok}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				charges := new(faulttest.Idempotent)
				srv := faulttest.NewInMemory(t, script(charges))
				if err := sdk(srv.URL, srv.Client()).charge(t, "invoice-1"); err != nil {
					t.Error(err)
				}
				srv.AssertAttempts(t, 2)
				srv.AssertSpacing(t, time.Minute, time.Hour)
				srv.AssertKeys(t, 1)
				charges.AssertExactlyOnce(t, 1)
			})
		})
	}
}
