package peers

import (
	"bytes"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/PuerkitoBio/rehttp"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"
)

func retryable() []Peer {
	return []Peer{
		{Name: "go-retryablehttp", Note: "NewClient: 5 attempts, 1 s to 30 s apart, doubling, no jitter", New: func(s Setting) Client {
			return retryableClient(s).StandardClient()
		}},
		{Name: "go-retryablehttp-full", Note: "4 attempts, 100 ms to 1 s times the attempt, Retry-After, returns the last response, a timeout for each", New: func(s Setting) Client {
			c := retryableClient(s)
			c.RetryMax, c.RetryWaitMin, c.RetryWaitMax = retries, shortest, time.Second // random between both, times the attempt
			c.Backoff = retryablehttp.RateLimitLinearJitterBackoff
			c.ErrorHandler = retryablehttp.PassthroughErrorHandler
			c.HTTPClient.Timeout = attemptTimeout
			return c.StandardClient()
		}},
	}
}

func retryableClient(s Setting) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.HTTPClient.Transport = s.Base
	c.Logger = nil // the default writes to stderr
	return c
}

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

// heimdalls has no full client: the circuits of hystrix-go are global variables with endless goroutines.
func heimdalls() []Peer {
	return []Peer{{Name: "heimdall", Note: "the example of its README: 5 attempts, 2 ms to 9 ms apart", New: func(s Setting) Client {
		return httpclient.NewClient(
			httpclient.WithHTTPClient(transport(s.Base)),
			httpclient.WithRetrier(heimdall.NewRetrier(heimdall.NewExponentialBackoff(2*time.Millisecond, 9*time.Millisecond, 2, 2*time.Millisecond))),
			httpclient.WithRetryCount(4))
	}}}
}

func azcores() []Peer {
	return []Peer{
		{Name: "azcore", Note: "a pipeline: 4 attempts, 0.8 s to 60 s apart, Retry-After", New: func(s Setting) Client {
			return newAzcore(s, policy.RetryOptions{})
		}},
		{Name: "azcore-full", Note: "4 attempts, 100 ms to 10 s apart, a timeout for each", New: func(s Setting) Client {
			return newAzcore(s, policy.RetryOptions{MaxRetries: retries, RetryDelay: shortest, MaxRetryDelay: longest, TryTimeout: attemptTimeout})
		}},
	}
}

type azcoreClient struct{ pipeline runtime.Pipeline }

func newAzcore(s Setting, retry policy.RetryOptions) Client {
	return azcoreClient{runtime.NewPipeline("benchmarks", "v0", runtime.PipelineOptions{}, &policy.ClientOptions{
		Transport: transport(s.Base), // *http.Client is a Transporter
		Retry:     retry,
		Telemetry: policy.TelemetryOptions{Disabled: true},
	})}
}

func (c azcoreClient) Do(req *http.Request) (*http.Response, error) {
	clone := req.Clone(req.Context()) // the pipeline modifies the request
	body, err := payload(req)
	if err != nil {
		return nil, err
	}
	if body != nil { // it copies a body that is not seekable
		clone.Body = seekable{bytes.NewReader(body)}
	}
	r, err := runtime.NewRequestFromRequest(clone)
	if err != nil {
		return nil, err
	}
	runtime.SkipBodyDownload(r) // the caller reads it
	return c.pipeline.Do(r)
}
