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

// Fault is one trouble of a server: which requests it befalls, and what they get.
// A scenario has as many as it likes; the first that befalls a request decides.
type Fault struct {
	From, To time.Duration // since the start; both 0: the scenario's During, and on if it has no After
	Path     string        // of the requests; "": any
	Backends []int         // that the request is dealt to; nil: any
	Share    float64       // of the requests that it could befall; 0: all
	Times    int           // that it happens at most; 0: as often as it may

	Response Response
	Worked   bool // the answer comes after the work, as another's would
}

// Answer is what a request gets.
type Response struct {
	Status     int // 0: none
	RetryAfter int // seconds, which it is told; 0: it is not

	Err  error // instead of a status
	Hang bool  // nothing at all, until somebody gives up

	After, Until time.Duration // when it comes: between the two, drawn evenly; Until 0: After
}

// What a transport says of a server that is not there, or no longer.
var (
	errRefused error = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	errReset   error = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
)

// visit is one attempt, as the server sees it.
type attempt struct {
	at            time.Duration // since the start
	call, attempt int
	path          string
	backend       int
}

// befalls reports whether the i-th of the scenario's faults befalls the visit,
// which was so often that it happened.
func (f *Fault) matches(v attempt, s *Scenario, d random, i, happened int) bool {
	from, to := stretch(f.From, f.To, s)
	return v.at >= from && v.at < to &&
		(f.Path == "" || f.Path == v.path) &&
		(f.Backends == nil || slices.Contains(f.Backends, v.backend)) &&
		(f.Times == 0 || happened < f.Times) &&
		(f.Share == 0 || d.fraction(v.call, v.attempt, drawFault+2*i) < f.Share)
}

// stretch is what is between the two, or the scenario's trouble. That has no end if
// nothing comes after it, or calls that are late would meet a server that is well.
func stretch(from, to time.Duration, s *Scenario) (time.Duration, time.Duration) {
	switch {
	case from != 0 || to != 0:
		return from, to
	case s.After == 0:
		return s.Before, math.MaxInt64
	}
	return s.Before, s.Before + s.During
}

func (a Response) header() http.Header {
	if a.RetryAfter == 0 {
		return nil
	}
	return http.Header{"Retry-After": {strconv.Itoa(a.RetryAfter)}}
}
