// Package redisstore keeps the records of package idempotency in Redis 5 or later, or Valkey.
//
//	client := redis.NewClient(&redis.Options{
//		Addr:                  "redis:6379",
//		ContextTimeoutEnabled: true,        // a context's deadline also bounds the wait for a reply
//		PoolTimeout:           time.Second, // after this time a claim fails with idempotency.ErrStoreBusy
//		MaxRetries:            -1,          // the executor repeats what may be repeated
//	})
//
// Redis can lose records that it has acknowledged, and the next request with such a key is
// executed again. Without appendonly, the default, a crash loses the records since the last
// snapshot. With appendfsync everysec it loses up to about a second of records. A failover
// loses what the replica did not have: replication is asynchronous, and the store does not use
// WAIT. So this store does not replace pgstore or sqlitestore where a second execution costs
// money. Use it with appendonly yes, appendfsync always and no failover, or for operations that
// are safe to repeat.
//
// Each operation is one script, by the clock of the server. For a duplicate of a finished
// request it writes nothing, so it also works on a read-only replica, and while Redis rejects
// writes with OOM or MISCONF. A claim fails with that error. When memory is full, executions
// that were admitted can still be completed.
//
// Records have no expiry in Redis: run an idempotency.Sweeper. A record takes about 1 KB beside
// its result. All keys of a store have one hash tag, so a Redis Cluster keeps them on one node.
package redisstore

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed" // the script
	"encoding/gob"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

//go:embed store.lua
var source string

var script = redis.NewScript(source) //nolint:gochecknoglobals // It is never changed.

// Options configures a Store.
type Options struct {
	// Prefix is the hash tag of all keys of the store. "" means "idempotency". It must not begin with "}": the tag would be
	// empty, and a Redis Cluster would keep the keys on several nodes. Each operation fails with a idempotency.ErrInvalid then.
	Prefix string
}

// Store is a idempotency.Store in Redis. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	prefix string
}

// New returns a store that uses client, and does not close it. options may be nil.
func New(client redis.UniversalClient, options *Options) *Store {
	if options == nil || options.Prefix == "" {
		options = &Options{Prefix: "idempotency"}
	}
	return &Store{client, "{" + options.Prefix + "}:"}
}

// Check implements idempotency.Store. It fails if Redis may evict records.
func (s *Store) Check(ctx context.Context) error {
	reply, err := s.run(ctx, nil, "check", "")
	switch {
	case err != nil:
		return err
	case reply[0] != nil && reply[0] != "1":
		return fmt.Errorf("redisstore: keys %s* have format %v, want 1: upgrade this service or change Options.Prefix", s.prefix, reply[0])
	case strings.HasPrefix(fmt.Sprint(reply[1]), "allkeys-"):
		return fmt.Errorf("redisstore: maxmemory-policy is %v, and an evicted key is executed again: run CONFIG SET maxmemory-policy noeviction", reply[1])
	}
	return nil
}

// Reserve implements idempotency.Store.
func (s *Store) Reserve(ctx context.Context, claim idempotency.Claim) (idempotency.Reservation, error) {
	reply, err := s.run(ctx, claim.Validate(), "claim", names(&claim.ID),
		string(claim.Fingerprint), claim.Owner, milliseconds(claim.Lease), milliseconds(claim.TTL), uint8(claim.Takeover))
	if err != nil {
		return idempotency.Reservation{}, err
	}
	decision, _ := reply[0].(int64)
	r := idempotency.Reservation{Decision: idempotency.Decision(decision), Resumed: reply[1] == int64(1), LeaseExpired: reply[2] == int64(1)}
	r.Record, err = decode(reply[3])
	return r, err
}

// Renew implements idempotency.Store.
func (s *Store) Renew(ctx context.Context, lease idempotency.Lease, d time.Duration) error {
	return s.update(ctx, idempotency.ValidLease(d), &lease, idempotency.StatusInProgress, milliseconds(d), 0)
}

// Complete implements idempotency.Store.
func (s *Store) Complete(ctx context.Context, lease idempotency.Lease, outcome idempotency.Outcome) error {
	var result bytes.Buffer
	body := outcome.Result.Body
	outcome.Result.Body = nil // It has a field of its own, because gob does not distinguish empty from nil.
	err := errors.Join(outcome.Validate(), gob.NewEncoder(&result).Encode(outcome.Result))
	fields := []any{"result", result.Bytes(), "body", body}
	if outcome.Status != idempotency.Completed && outcome.Status != idempotency.FailedFinal {
		fields = nil
	} else if body == nil {
		fields = fields[:2]
	}
	return s.update(ctx, err, &lease, outcome.Status, 0, milliseconds(outcome.TTL), fields...)
}

// Release implements idempotency.Store.
func (s *Store) Release(ctx context.Context, lease idempotency.Lease) error {
	return s.update(ctx, nil, &lease, idempotency.FailedRetryable, 0, 0)
}

func (s *Store) update(ctx context.Context, invalid error, lease *idempotency.Lease, status idempotency.Status, d, ttl int64, fields ...any) error {
	args := append([]any{lease.Owner, lease.Generation, rand.Text(), uint8(status), d, ttl}, fields...)
	reply, err := s.run(ctx, errors.Join(lease.Validate(), invalid), "update", names(&lease.ID), args...)
	if err == nil && reply[0] != int64(1) {
		return idempotency.ErrLeaseLost
	}
	return err
}

// Load implements idempotency.Store.
func (s *Store) Load(ctx context.Context, id idempotency.ID) (idempotency.Record, error) {
	list, err := s.run(ctx, id.Validate(), "load", names(&id))
	if err == nil && len(list) == 0 {
		err = idempotency.ErrNotFound
	}
	if err != nil {
		return idempotency.Record{}, err
	}
	return decode(list)
}

// Reap implements idempotency.Store.
func (s *Store) Reap(ctx context.Context, limit int) ([]idempotency.Record, error) {
	reply, err := s.run(ctx, nil, "reap", "", max(limit, 0))
	records := make([]idempotency.Record, len(reply))
	for i := 0; i < len(reply) && err == nil; i++ {
		records[i], err = decode(reply[i])
	}
	return records, err
}

// Unknown implements idempotency.Store.
func (s *Store) Unknown(ctx context.Context, scope string) iter.Seq2[idempotency.Record, error] {
	return func(yield func(idempotency.Record, error) bool) {
		first, last := "-", "+"
		if scope != "" {
			first, last = "["+scope+"\x00", "("+scope+"\x01"
		}
		for n := 1; n > 0; {
			page, err := s.run(ctx, nil, "unknown", "", first, last, 100)
			if n = len(page); err != nil {
				yield(idempotency.Record{}, err)
			}
			for _, one := range page {
				record, err := decode(one)
				if (record.Status != 0 || err != nil) && !yield(record, err) || err != nil {
					return
				}
				first = "(" + names(&record.ID)
			}
		}
	}
}

// Sweep implements idempotency.Store.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	reply, err := s.run(ctx, nil, "sweep", "", max(limit, 0))
	return len(reply), err
}

// run runs an operation of the script.
func (s *Store) run(ctx context.Context, invalid error, operation, names string, args ...any) ([]any, error) {
	if invalid != nil {
		return nil, invalid
	}
	if strings.HasPrefix(s.prefix, "{}") {
		return nil, fmt.Errorf("%w: redisstore: Options.Prefix: %q (want a hash tag, which does not begin with a closing brace)",
			idempotency.ErrInvalid, s.prefix[1:len(s.prefix)-len("}:")])
	}
	keys := []string{s.prefix + "record:" + names, s.prefix + "expiry", s.prefix + "lease", s.prefix + "unknown", s.prefix + "format"}
	reply, err := script.Run(ctx, s.client, keys, append([]any{operation, names}, args...)...).Slice()
	switch {
	case err == nil:
		return reply, nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, redis.ErrPoolTimeout):
		err = fmt.Errorf("%w: %w", idempotency.ErrStoreBusy, err)
	}
	return nil, fmt.Errorf("redisstore: %s: %w", operation, err)
}

// milliseconds rounds up: a positive duration stays positive.
func milliseconds(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

// names joins names. None has a NUL, so the order of the bytes is that of scope, operation and key.
func names(id *idempotency.ID) string { return id.Scope + "\x00" + id.Operation + "\x00" + id.Key }

// decode reads a record as the script returns it. A record that was deleted has only names.
func decode(reply any) (r idempotency.Record, err error) {
	list, _ := reply.([]any)
	var texts [13]string
	for i := range list {
		texts[i], _ = list[i].(string)
	}
	r.Fingerprint, r.Owner = idempotency.Fingerprint(texts[7]), texts[8]
	r.Scope, r.Operation, _ = strings.Cut(texts[12], "\x00")
	r.Operation, r.Key, _ = strings.Cut(r.Operation, "\x00")
	if texts[0] != "" {
		var lease, started, updated, expires int64
		_, err = fmt.Sscan(strings.Join(texts[:7], " "), &r.Status, &r.Takeover, &r.Generation, &lease, &started, &updated, &expires)
		r.LeaseExpires, r.Started = time.UnixMilli(lease).UTC(), time.UnixMilli(started).UTC()
		r.Updated, r.Expires = time.UnixMilli(updated).UTC(), time.UnixMilli(expires).UTC()
	}
	if err == nil && texts[9] != "" {
		err = gob.NewDecoder(strings.NewReader(texts[9])).Decode(&r.Result)
	}
	if list[10] != nil {
		r.Result.Body = []byte(texts[10])
	}
	if err != nil {
		err = fmt.Errorf("redisstore: decode a record: %w", err)
	}
	return r, err
}
