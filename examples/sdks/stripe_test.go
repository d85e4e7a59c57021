package sdks

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v85"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/vendors"
)

// stripeMock starts Stripe's mock server on a Unix socket, and returns a function that dials it. A free
// TCP port could be taken before the server listens.
func stripeMock(t *testing.T) (dial func(context.Context, string, string) (net.Conn, error)) {
	t.Helper()
	dir := t.TempDir()
	program, socket := filepath.Join(dir, "stripe-mock"), filepath.Join(dir, "socket")
	built, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/stripe/stripe-mock").CombinedOutput()
	require.NoError(t, err, string(built))
	mock := exec.CommandContext(t.Context(), program, "-http-unix", socket)
	mock.Stderr = os.Stderr
	require.NoError(t, mock.Start())
	t.Cleanup(func() { _ = mock.Wait() }) // killed when the test's context ends
	dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	require.Eventually(t, func() bool {
		conn, err := dial(t.Context(), "", "")
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, 2*time.Minute, 20*time.Millisecond) // the mock reads a large description of the API
	return dial
}

func stripeClient(transport http.RoundTripper, url string, retries int64) *stripe.Client {
	backends := stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		HTTPClient: &http.Client{Transport: transport}, URL: stripe.String(url),
		MaxNetworkRetries: new(retries), LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	})
	return stripe.NewClient("sk_test_123", stripe.WithBackends(backends))
}

func charge(t *testing.T, client *stripe.Client) error {
	t.Helper()
	intent, err := client.V1PaymentIntents.Create(t.Context(), &stripe.PaymentIntentCreateParams{
		Amount: stripe.Int64(1099), Currency: stripe.String("eur"),
	})
	if err == nil {
		assert.NotEmpty(t, intent.ID)
	}
	return err
}

// stripe-go charges Stripe's mock through the profile, without its own retries. The first response is
// lost. The second attempt has the SDK's key.
func TestStripe(t *testing.T) {
	const address = "stripe.example"
	transport := vendors.Stripe(address)
	sockets := resilienthttp.NewBase()
	sockets.DialContext = stripeMock(t)
	base := &lossy{RoundTripper: sockets}
	transport.Base, transport.Policy.Backoff = base, resilienthttp.Constant(time.Millisecond)
	require.NoError(t, charge(t, stripeClient(transport, "http://"+address, 0)))
	require.Len(t, base.sent, 2)
	assert.NotEmpty(t, base.sent[0].Get("Idempotency-Key"))
	assert.Equal(t, base.sent[0].Get("Idempotency-Key"), base.sent[1].Get("Idempotency-Key"))
}

// The Transport retries a lock timeout. A decline is the SDK's error.
func TestStripeCodes(t *testing.T) {
	lock := faulttest.Reply{Status: http.StatusBadRequest, Body: `{"error":{"type":"invalid_request_error","code":"lock_timeout"}}`}
	decline := faulttest.Reply{Status: http.StatusPaymentRequired, Body: `{"error":{"type":"card_error","code":"card_declined","decline_code":"insufficient_funds"}}`}
	api := start(t, faulttest.Sequence(lock, decline))
	transport := vendors.Stripe(api.URL[len("http://"):])
	transport.Policy.Backoff = resilienthttp.Constant(time.Millisecond)
	err := charge(t, stripeClient(transport, api.URL, 0))
	var declined *stripe.Error
	require.ErrorAs(t, err, &declined)
	assert.Equal(t, stripe.ErrorCodeCardDeclined, declined.Code)
	api.AssertAttempts(t, 2)
	api.AssertKeys(t, 1)
}

// stripe-go does not report whether its retries are on. So the Transport makes one attempt more, unless
// OwnsRetries is set.
func TestStripeRetries(t *testing.T) {
	for _, row := range []struct {
		name     string
		retries  int64
		owns     bool
		policy   resilienthttp.Policy
		requests int
	}{
		{"both retry: one attempt more than the SDK", 2, false, quick(), 3 + 1},
		{"no retries of the SDK: one retry", 0, false, quick(), 2},
		{"no retries of the SDK, OwnsRetries: attempts of the Transport", 0, true, quick(), 4},
		{"no retries of the Transport: attempts of the SDK", 2, false, resilienthttp.Policy{MaxAttempts: -1}, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			api := start(t, faulttest.ResetAfterRead)
			transport := plain(nil)
			transport.Policy, transport.OwnsRetries = row.policy, row.owns
			transport.Policy.MaxAttempts = cmp.Or(row.policy.MaxAttempts, 4)
			require.Error(t, charge(t, stripeClient(transport, api.URL, row.retries)))
			api.AssertRequests(t, row.requests)
			api.AssertKeys(t, 1)
		})
	}
}
