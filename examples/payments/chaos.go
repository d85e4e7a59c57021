package main

import (
	"flag"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"time"
)

// chaos is how badly a server answers: shares of its answers to POST.
type chaos struct {
	lose float64 // the work is done, and the connection is reset
	late float64 // the work is done, and the answer comes when nobody waits any more
	slow float64 // the work is begun when nobody waits any more

	patience time.Duration // of those who wait
}

func (c *chaos) flags(flags *flag.FlagSet) {
	flags.Float64Var(&c.lose, "lose", 0, "share of answers that are lost after the work")
	flags.Float64Var(&c.late, "late", 0, "share of answers that come too late")
	flags.Float64Var(&c.slow, "slow", 0, "share of requests that are worked on too late")
}

func (c *chaos) around(next http.Handler) http.Handler {
	tooLong := c.patience + 200*time.Millisecond
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
			time.Sleep(tooLong)
			copyAnswer(w, answer)
		case dice < c.lose+c.late+c.slow:
			time.Sleep(tooLong)
			next.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// reset breaks the connection, as a crash or a middlebox does.
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
