// Package pgkit contains what the stores in PostgreSQL share: schema migrations with
// versions, statements that share a round trip, durable transactions and retries. It
// knows nothing of the stored data.
//
// The stores' packages are named pgstore, so the texts of its errors begin with that.
package pgkit
