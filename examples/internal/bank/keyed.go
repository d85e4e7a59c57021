package bank

import (
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
)

// keyed are the answers by key. One that is not there yet is nil.
type keyed struct {
	mu      sync.Mutex
	answers map[string]*httptest.ResponseRecorder
}

// around gives the first answer again, save that nothing was done.
func (k *keyed) around(b *Bank, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if !b.Keys || key == "" {
			next.ServeHTTP(w, r)
			return
		}
		answer, known := k.begin(key)
		if known && answer == nil {
			http.Error(w, "it is being worked on", http.StatusConflict)
			return
		}
		if !known {
			answer = httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			k.end(key, answer)
		}
		chaos.Copy(w, answer)
	})
}

// begin is the answer of a key that is known, or makes it known.
func (k *keyed) begin(key string) (answer *httptest.ResponseRecorder, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if answer, known = k.answers[key]; known {
		return answer, true
	}
	if k.answers == nil {
		k.answers = make(map[string]*httptest.ResponseRecorder)
	}
	k.answers[key] = nil
	return nil, false
}

func (k *keyed) end(key string, answer *httptest.ResponseRecorder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if answer.Code >= http.StatusInternalServerError {
		delete(k.answers, key)
		return
	}
	k.answers[key] = answer
}
