package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

func awses() []Peer {
	return []Peer{
		{Name: "aws-sdk-go-v2", Note: "standard retryer: 3 attempts, full jitter to 20 s, 500 retry tokens", New: func(s Setting) Client {
			return newAWS(s, retry.NewStandard())
		}},
		{Name: "aws-sdk-go-v2-full", Note: "adaptive retryer: 4 attempts to 10 s, and a client rate limit that adapts to throttling", New: func(s Setting) Client {
			return newAWS(s, adaptive{new(turnstile), retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
				o.FailOnNoAttemptTokens = true
				o.StandardOptions = append(o.StandardOptions, func(o *retry.StandardOptions) {
					o.MaxAttempts, o.MaxBackoff = attempts, longest
				})
			})})
		}},
	}
}

// adaptive waits for its send tokens here. The SDK rounds the wait for the last 1e-9 of a
// token down to zero, which is an endless loop in virtual time.
type adaptive struct {
	*turnstile
	*retry.AdaptiveMode
}

const adaptivePoll = 20 * time.Millisecond

// GetAttemptToken implements aws.RetryerV2.
func (a adaptive) GetAttemptToken(ctx context.Context) (func(error) error, error) {
	if err := a.enter(ctx); err != nil {
		return nil, err
	}
	defer a.leave()
	for {
		if release, err := a.AdaptiveMode.GetAttemptToken(ctx); err == nil {
			return release, nil
		}
		if err := sleep.Context(ctx, adaptivePoll); err != nil {
			return nil, err
		}
	}
}

// awsClient is the SDK's retry middleware without a service. send converts responses to
// typed errors, as the client of a service does.
type awsClient struct {
	client  Client
	attempt *retry.Attempt
}

func newAWS(s Setting, retryer aws.RetryerV2) Client {
	return awsClient{client: transport(s.Base), attempt: retry.NewAttemptMiddleware(retryer, smithyhttp.RequestCloner)}
}

func (c awsClient) Do(req *http.Request) (*http.Response, error) {
	r, err := smithyRequest(req)
	if err != nil {
		return nil, err
	}
	ctx := middleware.ClearStackValues(req.Context())
	out, _, err := c.attempt.HandleFinalize(ctx, middleware.FinalizeInput{Request: r}, middleware.FinalizeHandlerFunc(c.send))
	if last, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return last.Response.Response, nil
	}
	resp, ok := out.Result.(*http.Response)
	if err == nil && !ok {
		err = fmt.Errorf("aws-sdk-go-v2: the result is a %T", out.Result)
	}
	return resp, err
}

// smithyRequest is the SDK's request. Its body is seekable, because the SDK retries no other.
func smithyRequest(req *http.Request) (*smithyhttp.Request, error) {
	r := &smithyhttp.Request{Request: req}
	if req.Body == nil || req.Body == http.NoBody {
		return r, nil
	}
	body, err := payload(req)
	if err != nil {
		return nil, err
	}
	if body == nil {
		return r.SetStream(req.Body)
	}
	return r.SetStream(bytes.NewReader(body))
}

func (c awsClient) send(ctx context.Context, in middleware.FinalizeInput) (out middleware.FinalizeOutput, meta middleware.Metadata, err error) {
	r, ok := in.Request.(*smithyhttp.Request)
	if !ok {
		return out, meta, fmt.Errorf("aws-sdk-go-v2: the request is a %T", in.Request)
	}
	resp, err := c.client.Do(r.Build(ctx))
	switch {
	case err != nil:
		return out, meta, &smithyhttp.RequestSendError{Err: err}
	case resp.StatusCode < http.StatusBadRequest:
		out.Result = resp
		return out, meta, nil
	}
	// The SDK reads the code from the error's document.
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return out, meta, err
	}
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	code := "InternalFailure"
	if resp.StatusCode == http.StatusTooManyRequests {
		code = "TooManyRequestsException"
	}
	return out, meta, &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: resp},
		Err:      &smithy.GenericAPIError{Code: code},
	}
}

// turnstile permits one caller at a time to ask the limiter of aws-sdk-go-v2 for a token. Otherwise
// all that wait would ask again and again, and with thousands of callers this takes minutes of real
// time for a virtual minute. The next caller is random, as without a turnstile, so only the real time
// differs.
type turnstile struct {
	mu      sync.Mutex
	busy    bool
	waiting []chan struct{}
}

// enter waits until the caller is the only one. It must call leave then.
func (t *turnstile) enter(ctx context.Context) error {
	t.mu.Lock()
	if !t.busy {
		t.busy = true
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{}, 1)
	t.waiting = append(t.waiting, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		t.leaveQueue(turn)
		return context.Cause(ctx)
	}
}

// leaveQueue leaves the queue, or lets the next caller enter if it has entered meanwhile.
func (t *turnstile) leaveQueue(turn chan struct{}) {
	t.mu.Lock()
	i := slices.Index(t.waiting, turn)
	if i >= 0 {
		t.remove(i)
	}
	t.mu.Unlock()
	if i < 0 {
		t.leave()
	}
}

func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.busy = false
		return
	}
	i := rand.IntN(len(t.waiting))
	t.waiting[i] <- struct{}{}
	t.remove(i)
}

func (t *turnstile) remove(i int) {
	last := len(t.waiting) - 1
	t.waiting[i] = t.waiting[last]
	t.waiting = t.waiting[:last]
}
