package vendorsdk

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/vendors"
)

const stripeURL = "https://api.stripe.com"

// Stripe makes refunds through the API of Stripe. Package vendors has its profile: hosts and length
// of keys, and error codes. Only APIKey must be set. A Stripe is safe for concurrent use and must
// not be modified or copied after the first call.
type Stripe struct {
	// BaseURL is the URL of Stripe or of a mock. "" means https://api.stripe.com.
	BaseURL string

	// APIKey is the secret that is sent with each request.
	APIKey string

	// Base makes the attempts. Nil means resilienthttp.NewBase().
	Base http.RoundTripper

	once    sync.Once
	http    *http.Client
	baseURL string
}

func (s *Stripe) setup() {
	s.baseURL = cmp.Or(strings.TrimSuffix(s.BaseURL, "/"), stripeURL)
	transport := vendors.Stripe(hostOf(s.baseURL)...)
	transport.Base = s.Base // a profile is a Transport that can be modified
	transport.Policy.AttemptTimeout = 10 * time.Second
	transport.Policy.MaxRetryAfter = 10 * time.Second
	s.http = newHTTPClient(transport)
}

// Refund is a completed refund.
type Refund struct {
	ID     string `json:"id"`
	Charge string `json:"charge"`
	Amount int64  `json:"amount"` // in the currency's smallest unit
}

// Refund refunds a part of a charge, in the currency's smallest unit. Calls with the same key make
// one refund, for at least vendors.StripeKeyTTL. "" means a random key. The errors are those of
// [Client.CreateCharge].
func (s *Stripe) Refund(ctx context.Context, charge string, amount int64, key string) (*Refund, error) {
	s.once.Do(s.setup)
	if key != "" {
		ctx = resilienthttp.WithIdempotencyKey(ctx, key)
	}
	ctx, cancel := withDeadline(ctx, defaultTimeout)
	defer cancel()
	form := url.Values{"charge": {charge}, "amount": {strconv.FormatInt(amount, 10)}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.baseURL+"/v1/refunds", strings.NewReader(form))
	if err != nil {
		return nil, fmt.Errorf("vendorsdk: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	identify(req, s.APIKey)
	var refund Refund
	if err := exchange(s.http, req, &refund, stripeProblemIn); err != nil {
		return nil, err
	}
	return &refund, nil
}

// stripeProblemIn decodes the body of an error of Stripe.
func stripeProblemIn(body []byte) problem {
	var response struct {
		Error struct{ Type, Code, Message string }
	}
	if json.Unmarshal(body, &response) != nil {
		return problem{}
	}
	return problem{Title: response.Error.Type, Code: response.Error.Code, Detail: response.Error.Message}
}
