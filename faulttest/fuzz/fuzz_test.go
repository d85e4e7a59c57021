// Package fuzz_test draws scripts of server faults and settings of the client, and checks that what the client says
// agrees with what the servers have done.
package fuzz_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

var (
	one     = flag.Uint64("seed", 0, "run only the script of this seed")
	times   = flag.Int("times", 20, "how often -seed runs: the library's jitter is not of the seed")
	scripts = flag.Int("scripts", 0, "number of fresh scripts; 0: as many as fit into -seconds")
	seconds = flag.Int("seconds", 8, "time for fresh scripts")
)

const gate = 500 // scripts that always run: the seeds from 1 on

// found are the seeds that have found a fault of the library, and still do what they did.
var found = []uint64{
	17517084760783804810, 6737933828165436095, 12462232765765463598, 11421646775167125951, // a done POST, 303, and a GET that fails
	15304482881352722953, 6421125419658133167, 10642554101487512384, // a redirect to another endpoint, in doubt
	4945735828262103899,                                           // a doubt that the success of another origin ended
	2061535374369003352, 6151794744162176931, 6173628265537548068, // sent again behind a Base that hides it, without a body
	9539947436609599178, 9181164603007536614, // NotSent of a GET behind one
}

// §4.18a, N1: no POST is done twice, InDoubt and NotSent are never false, and no success is without work.
func TestScripts(t *testing.T) {
	if *one != 0 {
		for range *times {
			runScript(t, *one)
		}
		return
	}
	for first := uint64(1); first <= gate; first += 100 {
		t.Run(fmt.Sprintf("seeds from %d", first), func(t *testing.T) {
			for seed := range uint64(100) {
				runScript(t, first+seed)
			}
		})
	}
	for _, seed := range found {
		for range 3 {
			runScript(t, seed)
		}
	}
}

// As TestScripts, with other seeds each time.
func TestScripts_fresh(t *testing.T) {
	if testing.Short() || *one != 0 {
		t.Skip("fresh scripts take -seconds")
	}
	end := time.Now().Add(time.Duration(*seconds) * time.Second)
	n := 0
	for ; n < *scripts || *scripts == 0 && time.Now().Before(end); n++ {
		runScript(t, rand.Uint64())
	}
	t.Logf("%d scripts", n)
}

func runScript(t *testing.T, seed uint64) {
	t.Helper()
	bubble.Run(t, fmt.Sprintf("seed=%d", seed), func(t *testing.T) { run(t, newScript(seed)) })
}

func run(t *testing.T, s *script) {
	t.Helper()
	srv := startServers(t, s)
	client, closeIdle := s.newClient(srv)
	defer closeIdle()
	var all sync.WaitGroup
	for _, c := range s.calls {
		all.Go(func() {
			time.Sleep(c.at)
			c.run(client, srv)
		})
	}
	all.Wait()
	time.Sleep(time.Minute) // for what the servers still do
	for _, c := range s.calls {
		srv.report(t, c, c.check(srv), s)
	}
	if srv.running != 0 {
		t.Errorf("%d requests are in flight\n%s", srv.running, s)
	}
	srv.heal()
	time.Sleep(2 * time.Minute)
	for i := range 10 {
		method := []string{http.MethodGet, http.MethodPost}[i%2]
		c := &call{plan: plan{id: fmt.Sprintf("healthy-%d", i), method: method}}
		c.run(client, srv)
		broken := c.check(srv)
		switch {
		case broken == "" && (c.err != nil || c.resp.StatusCode != http.StatusOK):
			broken = "a healthy server is not used"
		case broken == "" && i == 9 && !strings.Contains(strings.Join(srv.seen[c.id], ""), hosts[0]):
			broken = "the first endpoint gets no traffic back"
		}
		srv.report(t, c, broken, s)
		time.Sleep(7 * time.Second)
	}
	closeIdle()
	synctest.Wait()
	for _, server := range srv.each {
		if _, open := server.Conns(); open > 0 {
			t.Errorf("%s: %d connections are open\n%s", server.host, open, s)
		}
	}
}

// report fails the test if a promise is broken.
func (s *servers) report(t *testing.T, c *call, broken string, of *script) {
	t.Helper()
	if broken != "" {
		t.Errorf("%s: %s\n%s\nerror: %v, in doubt: %t\n%s\n%s", c.id, broken, resilienthttp.Explain(c.resp, c.err), c.err,
			resilienthttp.InDoubt(c.resp, c.err), strings.Join(s.seen[c.id], "\n"), of)
	}
}
