package fleet

import (
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Fault is one failure of a server: the requests that match, and their response. The first
// fault that matches a request decides.
type Fault struct {
	From, To time.Duration // since the start; both 0: the scenario's During, without an end if After is 0
	Path     string        // of the requests; "": any
	Backends []int         // of the request; nil: any
	Share    float64       // ratio of the matching requests; 0: all
	Times    int           // maximum number; 0: unlimited

	Response Response
	Worked   bool // the response comes after the limit and the queue
}

// Response is the response of the server to a request.
type Response struct {
	Status     int // 0: none
	RetryAfter int // seconds; 0: no header

	Err  error // instead of a status
	Hang bool  // no response

	After, Until time.Duration // delay: uniformly between After and Until; Until 0: After
}

// The errors of a transport if a connection is refused or reset, for a Response.
var (
	ErrRefused error = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	ErrReset   error = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
)

// attempt is one HTTP request.
type attempt struct {
	at            time.Duration // since the start
	call, attempt int
	path          string
	backend       int
}

// matches reports whether the fault, the i-th of the scenario, applies to the attempt. It has
// happened the given number of times.
func (f *Fault) matches(v attempt, s *Scenario, d Chance, i, happened int) bool {
	from, to := stretch(f.From, f.To, s)
	return v.at >= from && v.at < to &&
		(f.Path == "" || f.Path == v.path) &&
		(f.Backends == nil || slices.Contains(f.Backends, v.backend)) &&
		(f.Times == 0 || happened < f.Times) &&
		(f.Share == 0 || d.Fraction(v.call, v.attempt, drawFault+2*i) < f.Share)
}

// stretch is the time from..to, or the scenario's During. During has no end if there is no
// After: late attempts must not find a healthy server.
func stretch(from, to time.Duration, s *Scenario) (time.Duration, time.Duration) {
	switch {
	case from != 0 || to != 0:
		return from, to
	case s.After == 0:
		return s.Before, math.MaxInt64
	}
	return s.Before, s.Before + s.During
}

func (r Response) header() http.Header {
	if r.RetryAfter == 0 {
		return nil
	}
	return http.Header{"Retry-After": {strconv.Itoa(r.RetryAfter)}}
}
