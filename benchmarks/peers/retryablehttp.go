package peers

import (
	"bytes"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
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
