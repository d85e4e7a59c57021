package bank

import (
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/chaos"
)

// keyed has the responses by key. A response is nil while the request is in progress.
type keyed struct {
	mu        sync.Mutex
	responses map[string]*httptest.ResponseRecorder
}

// handler replays the first response of a key, unless it is a 5xx.
func (k *keyed) handler(b *Bank, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if !b.Keys || key == "" {
			next.ServeHTTP(w, r)
			return
		}
		response, known := k.begin(key)
		if known && response == nil {
			http.Error(w, "request in progress", http.StatusConflict)
			return
		}
		if !known {
			response = httptest.NewRecorder()
			next.ServeHTTP(response, r)
			k.end(key, response)
		}
		chaos.Copy(w, response)
	})
}

// begin returns the response of a known key. It adds an unknown key.
func (k *keyed) begin(key string) (response *httptest.ResponseRecorder, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if response, known = k.responses[key]; known {
		return response, true
	}
	if k.responses == nil {
		k.responses = make(map[string]*httptest.ResponseRecorder)
	}
	k.responses[key] = nil
	return nil, false
}

func (k *keyed) end(key string, response *httptest.ResponseRecorder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if response.Code >= http.StatusInternalServerError {
		delete(k.responses, key)
		return
	}
	k.responses[key] = response
}
