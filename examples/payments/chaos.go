package main

import (
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"time"
)

// chaos is the network between the service and its clients, at its worst: the work
// is done and committed, and the answer does not arrive.
type chaos struct{ lose, late float64 }

// tooLate is longer than the client waits for an attempt.
const tooLate = attemptTimeout + 200*time.Millisecond

func (c chaos) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch dice := rand.Float64(); {
		case r.Method != http.MethodPost:
			next.ServeHTTP(w, r)
		case dice < c.lose:
			next.ServeHTTP(httptest.NewRecorder(), r)
			reset(w)
		case dice < c.lose+c.late:
			answer := httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			time.Sleep(tooLate)
			copyAnswer(w, answer)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// reset breaks the connection with a RST, as a crash or a middlebox does.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func copyAnswer(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}
