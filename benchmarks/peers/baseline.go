package peers

import (
	"io"
	"net/http"
	"time"
)

func baselines() []Peer {
	return []Peer{
		{Name: "bare", Note: "http.Client, no retries", New: func(s Setting) Client { return transport(s.Base) }},
		{Name: "naive", Note: "a loop of 4 attempts, 100 ms apart", New: func(s Setting) Client {
			return naive{transport(s.Base)}
		}},
	}
}

// naive is the loop that is in so many programs. It knows no POST bodies, no
// context and no server that has had enough.
type naive struct{ client Client }

func (n naive) Do(req *http.Request) (resp *http.Response, err error) {
	for attempt := range attempts {
		if attempt > 0 {
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // that is what such loops do
		}
		resp, err = n.client.Do(req)
		if !failed(resp, err) && resp.StatusCode != http.StatusTooManyRequests {
			return resp, nil
		}
		if err == nil && attempt < retries {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	return resp, err
}
