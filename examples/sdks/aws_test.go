package sdks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

func credentials() aws.Credentials {
	return aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret"}
}

// The SDK reports three attempts, so the Transport makes single attempts. The SDK signs each, and all
// have the same key.
func TestAWS(t *testing.T) {
	for _, row := range []struct {
		name     string
		retryer  aws.Retryer
		requests int
	}{
		{"both retry: attempts of the SDK", retry.NewStandard(func(o *retry.StandardOptions) {
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return time.Millisecond, nil })
		}), 3},
		{"no retries of the SDK: one attempt", aws.NopRetryer{}, 1}, // its bodies have no GetBody
	} {
		t.Run(row.name, func(t *testing.T) {
			api := start(t, faulttest.Status(http.StatusInternalServerError))
			queue := sqs.New(sqs.Options{
				Region: "eu-central-1", BaseEndpoint: aws.String(api.URL), HTTPClient: &http.Client{Transport: plain(nil)},
				Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return credentials(), nil }),
				Retryer:     row.retryer,
			})
			_, err := queue.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String(api.URL + "/1/q"), MessageBody: aws.String("x")})
			require.Error(t, err)
			api.AssertRequests(t, row.requests)
			api.AssertKeys(t, 1)
			for _, r := range api.Requests() {
				assert.Contains(t, r.Header.Get("Authorization"), "AWS4-HMAC-SHA256")
				assert.NotEmpty(t, r.Header.Get("Amz-Sdk-Request"))
			}
		})
	}
}

// A signer that is the Base signs the headers of each attempt.
func TestSigner_asBase(t *testing.T) {
	api := start(t, faulttest.Sequence(faulttest.Status(503), faulttest.OK("done")))
	transport := &resilienthttp.Transport{Base: signer{next: &resilienthttp.Connections{}}} // the default Base
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL, strings.NewReader("body"))
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	close1(t, resp, err)
	api.AssertAttempts(t, 2)
	api.AssertKeys(t, 1)
	signatures := map[string]bool{}
	for _, r := range api.Requests() {
		signature := r.Header.Get("Authorization")
		assert.Contains(t, signature, "idempotency-key")
		signatures[signature] = true
	}
	assert.Len(t, signatures, 2, "each attempt has its own signature")
}

// signer signs each request that it sends.
type signer struct{ next http.RoundTripper }

func (s signer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_ = r.Body.Close()
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	number, _ := resilienthttp.AttemptNumber(r.Context())
	sum := sha256.Sum256(body)
	now := time.Now().Add(time.Duration(number) * time.Second) // signatures differ only between seconds
	if err := v4.NewSigner().SignHTTP(r.Context(), credentials(), r, hex.EncodeToString(sum[:]), "execute-api", "eu-central-1", now); err != nil {
		return nil, err
	}
	return s.next.RoundTrip(r)
}
