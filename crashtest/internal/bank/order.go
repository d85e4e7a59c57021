package bank

// Order is the body of a request.
type Order struct {
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"` // in cents
}

// Valid reports whether the order is valid.
func (o Order) Valid() bool { return o.Reference != "" && o.Amount > 0 }

// Covered reports whether the account has sufficient funds. One of twenty orders is not covered.
func (o Order) Covered() bool { return o.Amount%20 != 0 }

// Charge is a booked order. Each booking has its own ID, so that duplicates are visible.
type Charge struct {
	ID string `json:"id"`
	Order
}
