package resilienthttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// The calls of a stranger fail because of itself: the server is healthy.
type stranger struct {
	name     string
	request  func(t *testing.T, random *rand.Rand) *http.Request
	deadline func(took time.Duration) time.Duration // of its calls; nil: that of all
	status   func(random *rand.Rand) int            // of its responses; nil: 200
	least    float64                                // part of the healthy calls that is served
}

func strangers() []stranger {
	get := func(t *testing.T, _ *rand.Rand) *http.Request {
		return newRequest(t, http.MethodGet, "http://api.test/things?stranger", "")
	}
	report := func(t *testing.T, _ *rand.Rand) *http.Request {
		return newRequest(t, http.MethodGet, "http://api.test/report?stranger", "")
	}
	fraction := func(of float64) func(time.Duration) time.Duration {
		return func(took time.Duration) time.Duration { return time.Duration(of * float64(took)) }
	}
	upload := func(length int64) func(t *testing.T, random *rand.Rand) *http.Request {
		return func(t *testing.T, random *rand.Rand) *http.Request {
			broken := io.MultiReader(strings.NewReader(strings.Repeat("x", random.IntN(2000))), brokenReader{errors.New("malformed chunked encoding")})
			req, err := http.NewRequest(http.MethodPost, "http://api.test/things?stranger", broken)
			require.NoError(t, err)
			req.ContentLength = length
			return req
		}
	}
	return []stranger{
		{"one tenant fails", get, nil, func(random *rand.Rand) int { return []int{500, 502, 503}[random.IntN(3)] }, .95},
		{"broken uploads of unknown length", upload(-1), nil, nil, .99},
		{"broken short uploads", upload(3000), nil, nil, .99},
		{"deadlines of half a response", get, fraction(.5), nil, .99},
		{"deadlines of nearly a response", get, fraction(.95), nil, .99},
		{"deadlines too short for a report", report, fraction(10), nil, .99},
		{"slow uploads: 408", get, nil, func(*rand.Rand) int { return http.StatusRequestTimeout }, .99},
		{"callers that go: 499 of a gateway", get, nil, func(*rand.Rand) int { return 499 }, .99},
	}
}

type brokenReader struct{ err error }

func (r brokenReader) Read([]byte) (int, error) { return 0, r.err }

// §4.15: the server is healthy, and most calls fail because of their caller: a tenant that only their body, query or header names,
// a broken body, a short deadline. The healthy rest is served as by a bare client, whatever its share. Where little is sent and
// little works, chance may look like an outage: so the tenant's row may lose one in twenty healthy calls. It loses one in 65 on the
// average, because in one of the 80 draws the first thirty calls all fail. The other rows lose none.
func TestHealthyServer(t *testing.T) {
	for _, s := range strangers() {
		t.Run(s.name, func(t *testing.T) {
			var healthy, served atomic.Int64
			for seed := range uint64(80) {
				random := rand.New(rand.NewPCG(seed, 82))
				rate := []float64{1, 5, 20, 100}[random.IntN(4)]
				working := .01 + .2*random.Float64()
				if s.status != nil { // these speak of the server
					working += .1
				}
				took := []time.Duration{time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond}[random.IntN(3)]
				bubble.Run(t, fmt.Sprintf("seed %d: %.2f of %.0f calls a second work, %v", seed, working, rate, took), func(t *testing.T) {
					tr := &resilienthttp.Transport{Base: s.server(seed, took)}
					var calls sync.WaitGroup
					for i := range int(30 + min(60*rate, 1000)) {
						if i == 30 {
							calls.Wait()
						}
						time.Sleep(time.Duration(float64(time.Second) / rate * 2 * random.Float64()))
						req, deadline, works := s.request(t, random), 10*time.Second+30*took, random.Float64() < working || i < 30 && s.status == nil // what is usual, before the strangers come
						if works {
							req = newRequest(t, req.Method, "http://api.test"+req.URL.Path, "")
							if i%2 == 0 && i < 30 {
								req.URL.Path = "/things"
							}
						} else if s.deadline != nil {
							deadline = s.deadline(took)
						}
						works = works && i >= 30
						calls.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), deadline)
							defer cancel()
							resp, err := tr.RoundTrip(req.WithContext(ctx))
							if err == nil {
								_ = resp.Body.Close()
							}
							if works {
								healthy.Add(1)
								if err == nil && resp.StatusCode == http.StatusOK {
									served.Add(1)
								}
							}
						})
					}
					calls.Wait()
				})
			}
			require.GreaterOrEqual(t, float64(served.Load()), s.least*float64(healthy.Load()), "%d of %d healthy calls", served.Load(), healthy.Load())
		})
	}
}

// server returns a server that is healthy for all but the stranger. Half of its responses take up to half as long again.
func (s stranger) server(seed uint64, took time.Duration) http.RoundTripper {
	random := rand.New(rand.NewPCG(seed, 83))
	var mu sync.Mutex
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		wait, code := took+time.Duration(max(random.Float64()-.5, 0)*float64(took)), http.StatusOK
		if r.URL.Path == "/report" {
			wait *= 20
		}
		if strange := r.URL.RawQuery == "stranger"; strange && s.status != nil {
			code = s.status(random)
		}
		mu.Unlock()
		if r.Body != nil {
			defer func() { _ = r.Body.Close() }()
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return nil, err
			}
		}
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(wait):
		}
		return response(r, code, ""), nil
	})
}

// §4.15: a caller's body that fails ends its call, and says nothing of the server, on real connections too.
func TestOwnBody(t *testing.T) {
	broken := errors.New("disk: read error")
	for _, row := range []struct {
		name   string
		length int64
		body   io.Reader
		text   string
	}{
		{"an error, unknown length", -1, io.MultiReader(strings.NewReader("x"), brokenReader{broken}), broken.Error()},
		{"an error, short", 10, io.MultiReader(strings.NewReader("x"), brokenReader{broken}), broken.Error()},
		{"fewer bytes than promised", 10, io.MultiReader(strings.NewReader("x")), ""},
		{"more bytes than promised", 1, io.MultiReader(strings.NewReader("xyz")), ""},
	} {
		for _, http2 := range []bool{false, true} {
			if http2 && row.text == "" {
				continue // the server gets what there is, and answers
			}
			t.Run(fmt.Sprintf("%s, HTTP/2 %t", row.name, http2), func(t *testing.T) {
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if row.text == "" {
						<-r.Context().Done() // an answer to what was promised would come before the error of the body
					}
				}))
				srv.EnableHTTP2 = http2
				srv.StartTLS()
				defer srv.Close()
				attempts, mu := []resilienthttp.Attempt(nil), sync.Mutex{}
				tr := &resilienthttp.Transport{Base: srv.Client().Transport, Trace: &resilienthttp.Trace{AttemptDone: func(a *resilienthttp.Attempt) {
					mu.Lock()
					defer mu.Unlock()
					attempts = append(attempts, *a)
				}}}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL, row.body)
				require.NoError(t, err)
				req.ContentLength = row.length
				resp, err := tr.RoundTrip(req)
				if err == nil {
					_ = resp.Body.Close()
				}
				require.Error(t, err)
				if row.text != "" {
					require.ErrorIs(t, err, broken)
				}
				mu.Lock()
				defer mu.Unlock()
				require.Len(t, attempts, 1)
				require.Equal(t, resilienthttp.VerdictPermanent, attempts[0].Verdict)
			})
		}
	}
}

// A container that is being restarted has no address for seconds. A host that has never answered may be misspelled.
func TestUnknownHost(t *testing.T) {
	for _, row := range []struct {
		name             string
		answered         bool
		status, attempts int
	}{
		{"it has answered", true, http.StatusOK, 2},
		{"it has not", false, 0, 1},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var away time.Time
			attempts := 0
			tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				attempts++
				if time.Now().Before(away) {
					return nil, &net.DNSError{Err: "no such host", Name: "api.test", IsNotFound: true}
				}
				return response(r, http.StatusOK, ""), nil
			})}
			if row.answered {
				readAll(t, roundTrip(t, tr, newRequest(t, http.MethodGet, "http://api.test/", "")))
			}
			away, attempts = time.Now().Add(200*time.Millisecond), 0
			resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://api.test/", ""))
			if row.status != 0 {
				require.NoError(t, err)
				require.Equal(t, row.status, resp.StatusCode)
				readAll(t, resp)
			} else {
				require.Error(t, err)
			}
			require.GreaterOrEqual(t, attempts, row.attempts) // early waits may be short
			require.True(t, row.answered || attempts == 1, "%d attempts", attempts)
		})
	}
}
