package vendorsdk

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/resilienthttp/resilienthttp"
)

// Charge is a completed payment.
type Charge struct {
	ID        string `json:"id"`
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"` // in the currency's smallest unit
	Currency  string `json:"currency"`
}

// ChargeParams are the parameters of CreateCharge.
type ChargeParams struct {
	Reference string `json:"reference"` // of the merchant, such as an invoice number
	Amount    int64  `json:"amount"`    // in the currency's smallest unit, more than 0
	Currency  string `json:"currency"`  // ISO 4217, such as EUR
	Source    string `json:"source"`    // a card's token

	// IdempotencyKey identifies the charge: all calls with the same key make one charge, also
	// from other processes. Derive it from the invoice, such as "comp1:invoice:001". "" means
	// a random key, which protects only the retries of this call.
	IdempotencyKey string `json:"-"`
}

// CreateCharge charges a card. It returns an *Error for a response that is not a success;
// errors.Is finds ErrDeclined. Other errors have a *resilienthttp.Error in their chain. CallAgain
// reports whether the result is unknown, and when to repeat the call.
func (c *Client) CreateCharge(ctx context.Context, params ChargeParams) (*Charge, error) {
	if params.IdempotencyKey != "" {
		ctx = resilienthttp.WithIdempotencyKey(ctx, params.IdempotencyKey)
	}
	var charge Charge
	if err := c.call(ctx, http.MethodPost, "/v1/charges", params, &charge); err != nil {
		return nil, err
	}
	return &charge, nil
}

// GetCharge returns the charge with the given ID, or an *Error with status 404.
func (c *Client) GetCharge(ctx context.Context, id string) (*Charge, error) {
	if id == "" {
		return nil, errors.New("vendorsdk: GetCharge: ID is empty")
	}
	var charge Charge
	if err := c.call(ctx, http.MethodGet, "/v1/charges/"+url.PathEscape(id), nil, &charge); err != nil {
		return nil, err
	}
	return &charge, nil
}
