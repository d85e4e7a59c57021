package peers

import (
	"net/http"

	"github.com/PuerkitoBio/rehttp"
)

func rehttps() []Peer {
	// It has no defaults: RetryFn and DelayFn are arguments.
	return []Peer{
		{Name: "rehttp", Note: "4 attempts on 5xx, 429 and temporary errors, full jitter 100 ms to 10 s", New: func(s Setting) Client {
			return transport(rehttpTransport(s))
		}},
		{Name: "rehttp-full", Note: "rehttp with a timeout for each attempt", New: func(s Setting) Client {
			t := rehttpTransport(s)
			t.PerAttemptTimeout = attemptTimeout
			return transport(t)
		}},
	}
}

func rehttpTransport(s Setting) *rehttp.Transport {
	return rehttp.NewTransport(s.Base,
		rehttp.RetryAll(rehttp.RetryMaxRetries(retries), rehttp.RetryAny(
			rehttp.RetryTemporaryErr(), rehttp.RetryTimeoutErr(),
			rehttp.RetryStatuses(http.StatusTooManyRequests), rehttp.RetryStatusInterval(500, 600))),
		rehttp.ExpJitterDelay(shortest, longest))
}
