package chaos

import (
	"flag"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"
)

// Answers is how badly a server answers: shares of its answers to POST.
type Answers struct {
	Lose float64 // the work is done, and the connection is reset
	Late float64 // the work is done, and the answer comes when nobody waits any more
	Slow float64 // the work is begun when nobody waits any more, but soon after that

	Patience time.Duration // of those who wait
}

// Flags are -onLeaseExpired, -late and -slow.
func (c *Answers) Flags(flags *flag.FlagSet) {
	flags.Float64Var(&c.Lose, "lose", 0, "share of answers that are lost after the work")
	flags.Float64Var(&c.Late, "late", 0, "share of answers that come too late")
	flags.Float64Var(&c.Slow, "slow", 0, "share of requests that are worked on too late")
}

// Around is the server that answers so. It throws no dice: the shares are as even as they
// can be, so that some of some dozens go wrong, and the first goes well.
func (c *Answers) Around(next http.Handler) http.Handler {
	tooLong := c.Patience + 200*time.Millisecond
	var posts atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		_, share := math.Modf(0.5 + math.Phi*float64(posts.Add(1)-1)) // the golden ratio's multiples lie evenly
		switch {
		case share < c.Lose:
			next.ServeHTTP(httptest.NewRecorder(), r)
			Reset(w)
		case share < c.Lose+c.Late:
			answer := httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			time.Sleep(tooLong)
			Copy(w, answer)
		case share < c.Lose+c.Late+c.Slow:
			began := time.Now()
			time.Sleep(tooLong)
			if time.Since(began) > tooLong+tooLate {
				Reset(w) // the machine has stood still: nobody reckons with work that is begun so late
				return
			}
			next.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Reset breaks the connection, as a crash or a middlebox does.
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

// Copy writes an answer that was recorded.
func Copy(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}
