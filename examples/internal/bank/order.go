package bank

// Order is what a client asks for.
type Order struct {
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"` // in cents
}

// Valid reports whether it is one.
func (o Order) Valid() bool { return o.Reference != "" && o.Amount > 0 }

// Covered reports whether the account has it. One of twenty is not, so that there are refusals.
func (o Order) Covered() bool { return o.Amount%20 != 0 }

// Charge is an order that has been booked. Each booking has an id of its own, so
// that a second one cannot pass for the first.
type Charge struct {
	ID string `json:"id"`
	Order
}
