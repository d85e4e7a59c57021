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

// Stripe gives back what was charged through Stripe, an API that package vendors knows: to
// whom keys go, how long they may be and which of its codes pass is the profile's, and not
// written again here. The zero value is ready to use, but for the APIKey. A Stripe is safe
// for concurrent use; its fields are read at the first call and must not change after it.
type Stripe struct {
	// BaseURL is where Stripe is: a mock, say. "" means https://api.stripe.com.
	BaseURL string

	// APIKey is the secret that every request bears.
	APIKey string

	// Base makes the attempts. nil means resilienthttp's own.
	Base http.RoundTripper

	once    sync.Once
	http    *http.Client
	baseURL string
}

func (s *Stripe) setup() {
	s.baseURL = cmp.Or(strings.TrimSuffix(s.BaseURL, "/"), stripeURL)
	transport := vendors.Stripe(hostOf(s.baseURL)...)
	transport.Base = s.Base // a profile is like any other Transport: change what you know better
	transport.Policy.AttemptTimeout = 10 * time.Second
	transport.Policy.MaxRetryAfter = 10 * time.Second
	s.http = newHTTPClient(transport)
}

// Refund is money that was given back.
type Refund struct {
	ID     string `json:"id"`
	Charge string `json:"charge"`
	Amount int64  `json:"amount"` // in the currency's smallest unit
}

// Refund gives back a part of a charge, in the currency's smallest unit. Calls with the same
// key are one refund, for at least vendors.StripeKeyTTL; "" means a random one. Errors are as
// of [Client.CreateCharge]; AskAgain reads them.
func (s *Stripe) Refund(ctx context.Context, charge string, amount int64, key string) (*Refund, error) {
	s.once.Do(s.setup)
	if key != "" {
		ctx = resilienthttp.WithIdempotencyKey(ctx, key)
	}
	ctx, cancel := bounded(ctx, defaultTimeout)
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

// stripeProblemIn reads Stripe's errors as problemIn does the other API's.
func stripeProblemIn(body []byte) problem {
	var said struct {
		Error struct{ Type, Code, Message string }
	}
	if json.Unmarshal(body, &said) != nil {
		return problem{}
	}
	return problem{Title: said.Error.Type, Code: said.Error.Code, Detail: said.Error.Message}
}
