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

// naive is a common retry loop. It ignores bodies, the context and overload.
type naive struct{ client Client }

func (n naive) Do(req *http.Request) (resp *http.Response, err error) {
	for attempt := range attempts {
		if attempt > 0 {
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // this loop ignores the context
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
