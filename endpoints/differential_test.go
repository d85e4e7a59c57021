package endpoints_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/internal/memhttp"
)

var (
	freshSeed   = flag.Uint64("script", 0, "TestDifferential runs this seed alone")
	freshFor    = flag.Duration("scripts.for", 20*time.Second, "how long TestDifferential_fresh draws scripts")
	freshNumber = flag.Int("scripts", 0, "how many scripts TestDifferential_fresh draws; 0: by time")
)

// §4.18a, N1: random faults of servers, random settings, and random calls. What the Transport says of a call is
// compared with what the servers did: no POST is done twice, InDoubt and NotSent are never wrong, a result is of its own
// call, nothing stays in flight, and a healthy server is served again.
func TestDifferential(t *testing.T) {
	if *freshSeed != 0 {
		runScript(t, *freshSeed)
		return
	}
	for seed := range uint64(1000) {
		runScript(t, seed+1)
	}
}

// As many fresh scripts as fit. A failure names its seed: repeat it with -script.
func TestDifferential_fresh(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	begin := time.Now()
	n := 0
	for ; n < *freshNumber || *freshNumber == 0 && time.Since(begin) < *freshFor; n++ {
		runScript(t, rand.Uint64()) //nolint:gosec // a test
		if t.Failed() {
			break
		}
	}
	t.Log(n, "scripts")
}

func runScript(t *testing.T, seed uint64) {
	t.Helper()
	ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { newScript(t, seed).run(t) })
	})
	if !ok {
		t.Log("repeat it with: go test ./endpoints -run 'TestDifferential$' -script", seed)
	}
}

// script is one draw.
type script struct {
	*world

	rng     *rand.Rand // of the calls; the world's is used by servers
	client  *http.Client
	inner   *resilienthttp.Transport
	list    bool
	keyless bool
}

func newScript(t *testing.T, seed uint64) *script {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
	shared := rng.IntN(4) == 0
	s := &script{rng: rng, world: newWorld(t, rand.New(rand.NewPCG(seed, 2)), shared), list: rng.IntN(3) > 0} //nolint:gosec // a test
	s.inner = s.settings()
	s.client = &http.Client{Transport: s.inner}
	if s.list {
		s.client.Transport = &endpoints.Transport{Transport: s.inner, SharedKeys: shared, Endpoints: []endpoints.Endpoint{
			{Name: "a", URL: parse(t, "http://a.test")}, {Name: "b", URL: parse(t, "http://b.test")},
		}}
	}
	t.Cleanup(s.inner.CloseIdleConnections)
	return s
}

// settings draws each mechanism: its default, another value, or off.
func (s *script) settings() *resilienthttp.Transport {
	choose := s.rng.IntN
	network := s.network.Transport()
	tr := &resilienthttp.Transport{Base: network}
	switch choose(4) {
	case 0:
		tr.Base = &resilienthttp.Connections{Transport: network}
	case 1:
		tr.Base = roundTripper(network.RoundTrip)
	}
	tr.Policy.MaxAttempts = [...]int{0, 0, 1, 2, 5}[choose(5)]
	tr.Policy.AttemptTimeout = [...]time.Duration{0, 0, 300 * time.Millisecond, 2 * time.Second, -1}[choose(5)]
	if choose(3) == 0 {
		tr.Policy.Backoff = resilienthttp.Constant(time.Duration(choose(300)) * time.Millisecond)
	}
	if choose(3) == 0 {
		tr.Hedge = &resilienthttp.Hedge{Delay: time.Duration(choose(3)) * 100 * time.Millisecond}
	}
	switch choose(4) {
	case 0:
		tr.Breaker = &resilienthttp.Breaker{FailureRatio: -1}
	case 1:
		tr.Breaker = &resilienthttp.Breaker{MinRequests: 1 + choose(4), Cooldown: time.Duration(choose(3000)) * time.Millisecond}
	}
	if choose(3) == 0 {
		tr.Budget = &resilienthttp.Budget{Ratio: -1}
	}
	switch choose(4) {
	case 0:
		tr.RateLimit = &resilienthttp.RateLimit{IgnoreHeaders: true}
	case 1:
		tr.RateLimit = &resilienthttp.RateLimit{Limit: 5, MaxInFlight: 1 + choose(3)}
	}
	s.keyless = choose(4) == 0
	tr.Idempotency.Disabled = s.keyless
	tr.DeadlineHeader.Disabled = choose(2) == 0
	tr.OwnsRetries = choose(4) == 0
	return tr
}

func (s *script) run(t *testing.T) {
	var all sync.WaitGroup
	for worker := range 3 {
		rng := rand.New(rand.NewPCG(s.rng.Uint64(), 3)) //nolint:gosec // a test
		all.Go(func() {
			for i := range 6 {
				s.call(t, rng, fmt.Sprint(worker, "-", i), rng.IntN(4) == 0)
				time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
			}
		})
	}
	if s.rng.IntN(3) == 0 { // a region dies, with all its connections
		time.Sleep(time.Duration(s.rng.IntN(4000)) * time.Millisecond)
		s.network.SetDialFault(s.regions[0].host, memhttp.Refuse)
	}
	all.Wait()
	s.heal()
	time.Sleep(4 * time.Minute) // the longest wait that a server has asked for
	for i := range 5 {
		s.call(t, s.rng, fmt.Sprint("healthy ", i), true)
		time.Sleep(time.Second)
	}
	for _, scope := range s.inner.State().Scopes {
		assert.Zero(t, scope.InFlight, "in flight at %s", scope.Scope)
	}
}

// call makes one call, and compares what is said of it with what the servers did.
func (s *script) call(t *testing.T, rng *rand.Rand, id string, plain bool) {
	healthy := strings.HasPrefix(id, "healthy")
	method := [...]string{"POST", "POST", "POST", "GET", "PUT", "DELETE", "PATCH"}[rng.IntN(7)]
	ctx, cancel := context.WithTimeout(context.Background(), [...]time.Duration{time.Second, 10 * time.Second, time.Hour}[rng.IntN(3)])
	defer cancel()
	if !plain && rng.IntN(4) == 0 {
		ctx = resilienthttp.WithSingleAttempt(ctx)
	}
	if !plain && rng.IntN(4) == 0 {
		ctx = resilienthttp.WithPriority(ctx, resilienthttp.PriorityCritical)
	}
	if !plain && s.list && rng.IntN(4) == 0 {
		ctx = endpoints.WithEndpoint(ctx, [...]string{"a", "b"}[rng.IntN(2)])
	}
	var body io.Reader
	if rng.IntN(3) > 0 && method != "GET" {
		body = strings.NewReader("{}")
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://a.test/charge", body)
	require.NoError(t, err)
	req.Header.Set(callField, id)
	resp, err := s.client.Do(req)
	text, broken := "", err
	if err == nil {
		var content []byte
		content, broken = io.ReadAll(resp.Body)
		text = string(content)
		_ = resp.Body.Close()
	}
	time.Sleep(2 * time.Second) // what is still on its way arrives
	if healthy {
		assert.NoError(t, broken, "%s at a healthy server:\n%s", method, resilienthttp.Explain(resp, err))
	}
	s.compare(t, id, method, resp, err, text, broken)
}

func (s *script) compare(t *testing.T, id, method string, resp *http.Response, err error, text string, broken error) {
	s.mu.Lock()
	truth := *s.of(id)
	s.mu.Unlock()
	unsafe, success := method != "GET", resp != nil && resp.StatusCode/100 == 2
	doubt := resilienthttp.InDoubt(resp, err)
	check := func(ok bool, what string) {
		if !ok {
			t.Errorf("%s %s, keyless %v, list %v: %s: %+v, in doubt %v, body %q, %v\n%s", method, id, s.keyless, s.list, what, truth, doubt, text, broken, resilienthttp.Explain(resp, err))
		}
	}
	once := method == "POST" || method == "PATCH"
	check(!once || truth.works <= 1, "done twice")
	check(!success || !unsafe || truth.works > 0, "2xx without work")
	check(!success || broken != nil || text == "done "+id, "another call's answer")
	check(!unsafe || success || truth.works == 0 || doubt, "done, and not in doubt")
	failed, ok := errors.AsType[*resilienthttp.Error](err)
	check(!ok || !failed.NotSent() || truth.seen == 0, "a server has it, and NotSent")
}
