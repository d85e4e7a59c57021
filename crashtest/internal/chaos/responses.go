package chaos

import (
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"
)

// Responses has the ratios of faulty responses to POST.
type Responses struct {
	Lose float64 // the request is executed, and the connection is reset
	Late float64 // the request is executed, and the response is sent after Timeout
	Slow float64 // the request is executed shortly after Timeout

	Timeout time.Duration // of the clients
}

// Handler returns a handler with these faults around next. The faults are spread evenly instead of
// randomly, so that a few dozen requests have some, and the first request has none.
func (c *Responses) Handler(next http.Handler) http.Handler {
	tooLong := c.Timeout + 200*time.Millisecond
	var posts atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		_, fraction := math.Modf(0.5 + math.Phi*float64(posts.Add(1)-1)) // the multiples of the golden ratio are spread evenly
		switch {
		case fraction < c.Lose:
			next.ServeHTTP(httptest.NewRecorder(), r)
			Reset(w)
		case fraction < c.Lose+c.Late:
			response := httptest.NewRecorder()
			next.ServeHTTP(response, r)
			time.Sleep(tooLong)
			maps.Copy(w.Header(), response.Header())
			w.WriteHeader(response.Code)
			_, _ = w.Write(response.Body.Bytes())
		case fraction < c.Lose+c.Late+c.Slow:
			start := time.Now()
			time.Sleep(tooLong)
			if time.Since(start) > tooLong+tooLate {
				Reset(w) // the machine was suspended, and the tests do not expect such a late execution
				return
			}
			next.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Reset resets the connection.
func Reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
