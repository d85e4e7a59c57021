package peers

import (
	"io"
	"net/http"
	"net/url"
	"time"
)

func baselines() []Peer {
	return []Peer{
		{Name: "bare", Note: "http.Client, no retries", New: func(s Setting) Client { return transport(s.Base) }},
		{Name: "naive", Note: "a loop of 4 attempts, 100 ms apart", New: func(s Setting) Client {
			return naive{transport(s.Base), s.Endpoints}
		}},
	}
}

// naive is a common retry loop. It ignores bodies, the context and overload. With several endpoints
// each attempt goes to the next one, at once until each had one.
type naive struct {
	client    Client
	endpoints []string
}

func (n naive) Do(req *http.Request) (resp *http.Response, err error) {
	for attempt := range attempts {
		if attempt > 0 && attempt >= len(n.endpoints) {
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // this loop ignores the context
		}
		if len(n.endpoints) > 0 {
			u, err := url.Parse(n.endpoints[attempt%len(n.endpoints)])
			if err != nil {
				return nil, err
			}
			req = req.Clone(req.Context())
			req.URL.Host, req.Host = u.Host, ""
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
