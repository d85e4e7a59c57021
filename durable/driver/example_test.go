package driver_test

import (
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Decide is the state machine of all stores. A store writes the Change that it returns.
func ExampleDecide() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	terms := driver.Terms{KeyTTL: 24 * time.Hour, VisibilityDelay: time.Minute}
	intent := driver.Intent{
		ID:      idempotency.ID{Scope: "acme", Operation: "charge", Key: "invoice:1"},
		Gateway: "psp", Payload: []byte("{}"),
	}
	var record *driver.Record
	for _, event := range []driver.Event{
		{Kind: driver.EventEnqueue, Intent: intent},
		{Kind: driver.EventClaim, Intent: intent, Worker: "w1", Terms: &terms},
		{Kind: driver.EventLeaseExpired, Intent: intent, Worker: "w1"}, // the worker died
		{Kind: driver.EventClaim, Intent: intent, Worker: "w2", Terms: &terms},
		{
			Kind: driver.EventFinish, Intent: intent, Worker: "w2", Generation: 2, Terms: &terms,
			Outcome: driver.Outcome{Class: driver.ClassSucceeded},
		},
	} {
		change, err := driver.Decide(record, &event, now)
		fmt.Println(event.Kind, change.Record.State, change.Record.Epoch, err)
		record = &change.Record
	}
	// Output:
	// enqueue pending 1 <nil>
	// claim sending 1 <nil>
	// lease_expired unknown 1 <nil>
	// claim sending 1 <nil>
	// finish done 1 <nil>
}
