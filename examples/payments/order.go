package main

// order is what a client asks: POST /charges.
type order struct {
	Reference string `json:"reference"`
	Amount    int64  `json:"amount"` // in cents
}

func (o order) valid() bool { return o.Reference != "" && o.Amount > 0 }

// covered: the account has it. One of twenty is not, so that there are refusals.
func (o order) covered() bool { return o.Amount%20 != 0 }

// charge is an order that has been booked. Each booking has an id of its own, so
// that a second one cannot pass for the first.
type charge struct {
	ID string `json:"id"`
	order
}
