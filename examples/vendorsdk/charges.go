package vendorsdk

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/resilienthttp/resilienthttp"
)

// Charge is a payment that was made.
type Charge struct {
	ID        string `json:"id"`
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"` // in the currency's smallest unit
	Currency  string `json:"currency"`
}

// ChargeParams say what is to be charged.
type ChargeParams struct {
	Reference string `json:"reference"` // the merchant's own, such as an invoice number
	Amount    int64  `json:"amount"`    // in the currency's smallest unit, more than 0
	Currency  string `json:"currency"`  // ISO 4217, such as EUR
	Source    string `json:"source"`    // a card's token

	// IdempotencyKey makes one charge of all calls that bear it, also of those
	// that another process makes tomorrow: take it from what is paid for, such as
	// "comp1:invoice:001". "" means a random one, which protects this call's own
	// retries and nothing beyond.
	IdempotencyKey string `json:"-"`
}

// CreateCharge charges a card. It returns an *Error when the API answered
// otherwise, of which errors.Is finds ErrDeclined, and else an error with a
// *resilienthttp.Error in it. Where it is open whether the card was charged,
// AskAgain says so, and when.
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
		return nil, errors.New("vendorsdk: empty charge ID")
	}
	var charge Charge
	if err := c.call(ctx, http.MethodGet, "/v1/charges/"+url.PathEscape(id), nil, &charge); err != nil {
		return nil, err
	}
	return &charge, nil
}
