package matrix

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// probe is one test.
type probe struct {
	Name string
	Note string // a description
	run  func(peers.Peer) string
}

// ask runs the probe with one peer in virtual time.
func (p probe) ask(t *testing.T, peer peers.Peer) string {
	t.Helper()
	return bubble.Run(t, func() string { return p.run(peer) })
}

const target = "http://api.example/v1/charges"

// trial is one call to a scripted server.
type trial struct {
	server  *server
	request *http.Request
	err     error
	status  int    // of the response; 0: none
	text    string // of its body
	took    time.Duration
}

// do sends the request and reads the response.
func (tr *trial) do(peer peers.Peer) {
	client := peer.New(peers.Setting{Base: tr.server})
	start := time.Now()
	resp, err := client.Do(tr.request)
	tr.took, tr.err = time.Since(start), err
	if resp != nil {
		text, _ := io.ReadAll(resp.Body)
		tr.status, tr.text = resp.StatusCode, string(text)
		_ = resp.Body.Close()
	}
	synctest.Wait() // for bodies that are drained in the background
	if closer, ok := client.(io.Closer); ok {
		_ = closer.Close()
	}
}

// ask sends one request with the method and the body; "": none.
func ask(peer peers.Peer, method, body string, script func(int) answer) *trial {
	return askWith(context.Background(), peer, method, body, script)
}

func askWith(ctx context.Context, peer peers.Peer, method, body string, script func(int) answer) *trial {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	tr := &trial{server: &server{answer: script}, request: newRequest(ctx, method, reader)}
	tr.do(peer)
	return tr
}

func newRequest(ctx context.Context, method string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		panic(err) // the arguments are constants
	}
	return req
}

// attemptsAt counts the attempts if all of them get the status, or a timeout.
func attemptsAt(method string, status int) probe {
	what := "timeout"
	if status > 0 {
		what = fmt.Sprint(status)
	}
	script := func(int) answer { return answer{status: status, after: 10 * time.Millisecond} }
	return probe{
		Name: method + " " + what,
		Note: fmt.Sprintf("attempts of a %s if all responses are %s", method, what),
		run: func(p peers.Peer) string {
			body := ""
			if method == http.MethodPost {
				body = "payload" // and no key
			}
			return counted(method, ask(p, method, body, script).server)
		},
	}
}

// counted is the number of attempts, and whether a retried POST had a key. Without a key,
// each attempt may be a separate write.
func counted(method string, s *server) string {
	n := fmt.Sprint(len(s.attempts))
	keys := map[string]bool{}
	for _, a := range s.attempts {
		keys[a.key] = true
	}
	switch {
	case method != http.MethodPost || len(s.attempts) == 1:
		return n
	case len(keys) > 1 || keys[""]:
		return "**" + n + "**"
	}
	return n + ", one key"
}
