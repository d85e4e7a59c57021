package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/console"
)

// The console is one handler. The program authorises its readers and writers.
func Example() {
	engine := &durable.Engine{Store: new(durable.Memory)}
	operators := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, _, ok := r.BasicAuth(); !ok {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	mux := http.NewServeMux()
	mux.Handle("/durable", operators(&console.Handler{
		Engine: engine,
		By:     func(r *http.Request) string { name, _, _ := r.BasicAuth(); return name },
	}))

	for _, user := range []string{"", "ann"} {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/durable", http.NoBody)
		if user != "" {
			r.SetBasicAuth(user, "")
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.Contains(w.Body.String(), "<title>"))
	}
	// Output:
	// 401 false
	// 200 true
}
