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

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

//go:embed store.lua
var source string

var script = redis.NewScript(source) //nolint:gochecknoglobals // It is never changed.

// Options configures a Store.
type Options struct {
	// Prefix is the hash tag in the names of all keys. Stores with different prefixes are
	// independent. Default: "idempotency".
	Prefix string
}

// Store is a driver.Store in Redis. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	prefix string
}

var _ driver.Store = (*Store)(nil)

// New returns a store that uses client, and does not close it. options may be nil.
func New(client redis.UniversalClient, options *Options) *Store {
	if options == nil || options.Prefix == "" {
		options = &Options{Prefix: "idempotency"}
	}
	return &Store{client, "{" + options.Prefix + "}:"}
}

// Check implements driver.Store. It fails if Redis may evict records.
func (s *Store) Check(ctx context.Context) error {
	reply, err := s.run(ctx, script.RunRO, "check", "")
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

// Reserve implements driver.Store.
func (s *Store) Reserve(ctx context.Context, claim driver.Claim) (driver.Reservation, error) {
	if err := claim.Validate(); err != nil {
		return driver.Reservation{}, err
	}
	reply, err := s.run(ctx, script.Run, "claim", names(&claim.ID),
		string(claim.Fingerprint), claim.Owner, milliseconds(claim.Lease), milliseconds(claim.TTL), uint8(claim.Takeover))
	if err != nil {
		return driver.Reservation{}, err
	}
	decision, _ := reply[0].(int64)
	r := driver.Reservation{Decision: driver.Decision(decision), Resumed: reply[1] == int64(1), LeaseExpired: reply[2] == int64(1)} //nolint:gosec // 1 to 5
	r.Record, err = decode(reply[3])
	return r, err
}

// Renew implements driver.Store.
func (s *Store) Renew(ctx context.Context, lease driver.Lease, d time.Duration) error {
	return s.update(ctx, &lease, driver.ValidLease(d), driver.InProgress, milliseconds(d), 0)
}

// Complete implements driver.Store.
func (s *Store) Complete(ctx context.Context, lease driver.Lease, outcome driver.Outcome) error {
	var encoded bytes.Buffer
	err := errors.Join(outcome.Validate(), gob.NewEncoder(&encoded).Encode(result{outcome.Result, outcome.Result.Body != nil}))
	fields := []any{"result", encoded.Bytes()}
	if outcome.Status != driver.Completed && outcome.Status != driver.FailedFinal {
		fields = nil
	}
	return s.update(ctx, &lease, err, outcome.Status, 0, milliseconds(outcome.TTL), fields...)
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, lease driver.Lease) error {
	return s.update(ctx, &lease, nil, driver.FailedRetryable, 0, 0)
}

func (s *Store) update(ctx context.Context, lease *driver.Lease, invalid error, status driver.Status, d, ttl int64, fields ...any) error {
	if err := errors.Join(lease.Validate(), invalid); err != nil {
		return err
	}
	args := append([]any{lease.Owner, lease.Generation, rand.Text(), uint8(status), d, ttl}, fields...)
	reply, err := s.run(ctx, script.Run, "update", names(&lease.ID), args...)
	if err == nil && reply[0] != int64(1) {
		return driver.ErrLeaseLost
	}
	return err
}

// Load implements driver.Store.
func (s *Store) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if err := id.Validate(); err != nil {
		return driver.Record{}, err
	}
	found, err := s.run(ctx, script.RunRO, "load", names(&id))
	switch {
	case err != nil:
		return driver.Record{}, err
	case len(found) == 0:
		return driver.Record{}, driver.ErrNotFound
	}
	return decode(found[0])
}

// Reap implements driver.Store.
func (s *Store) Reap(ctx context.Context, limit int) ([]driver.Record, error) {
	reply, err := s.run(ctx, script.Run, "reap", "", max(limit, 0))
	records := make([]driver.Record, len(reply))
	for i := 0; i < len(reply) && err == nil; i++ {
		records[i], err = decode(reply[i])
	}
	return records, err
}

// Unknown implements driver.Store.
func (s *Store) Unknown(ctx context.Context, scope string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		first, last := "-", "+"
		if scope != "" {
			first, last = "["+scope+"\x00", "("+scope+"\x01"
		}
		for {
			page, err := s.run(ctx, script.RunRO, "unknown", "", first, last, 100)
			if err != nil {
				yield(driver.Record{}, err)
			}
			if len(page) == 0 {
				return
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

// Sweep implements driver.Store.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	reply, err := s.run(ctx, script.Run, "sweep", "", max(limit, 0))
	if err != nil {
		return 0, err
	}
	n, _ := reply[0].(int64)
	return int(n), nil
}

// run runs an operation of the script. RunRO also works on replicas and while writes are paused.
func (s *Store) run(ctx context.Context, run func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd,
	operation, names string, args ...any,
) ([]any, error) {
	keys := []string{s.prefix + "record:" + names, s.prefix + "expiry", s.prefix + "lease", s.prefix + "unknown", s.prefix + "format"}
	reply, err := run(ctx, s.client, keys, append([]any{operation, names}, args...)...).Slice()
	switch {
	case err == nil:
		return reply, nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, redis.ErrPoolTimeout):
		err = fmt.Errorf("%w: %w", driver.ErrStoreBusy, err)
	}
	return nil, fmt.Errorf("redisstore: %s: %w", operation, err)
}

// milliseconds rounds up: a positive duration stays positive.
func milliseconds(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

// names joins names. None has a NUL, so the order of the bytes is that of scope, operation and key.
func names(id *driver.ID) string { return id.Scope + "\x00" + id.Operation + "\x00" + id.Key }

// result is a Result as gob stores it. gob does not distinguish an empty body from nil.
type result struct {
	driver.Result
	HasBody bool
}

// decode reads a record as the script returns it. A record that was deleted has only names.
func decode(reply any) (r driver.Record, err error) {
	list, _ := reply.([]any)
	var texts [12]string
	for i := range list {
		texts[i], _ = list[i].(string)
	}
	r.Fingerprint, r.Owner = driver.Fingerprint(texts[7]), texts[8]
	r.Scope, r.Operation, _ = strings.Cut(texts[11], "\x00")
	r.Operation, r.Key, _ = strings.Cut(r.Operation, "\x00")
	if texts[0] != "" {
		var lease, started, updated, expires int64
		_, err = fmt.Sscan(strings.Join(texts[:7], " "), &r.Status, &r.Takeover, &r.Generation, &lease, &started, &updated, &expires)
		r.LeaseExpires, r.Started = time.UnixMilli(lease).UTC(), time.UnixMilli(started).UTC()
		r.Updated, r.Expires = time.UnixMilli(updated).UTC(), time.UnixMilli(expires).UTC()
	}
	if texts[9] != "" {
		var stored result
		err = errors.Join(err, gob.NewDecoder(strings.NewReader(texts[9])).Decode(&stored))
		r.Result = stored.Result
		if stored.HasBody && r.Result.Body == nil {
			r.Result.Body = []byte{}
		}
	}
	if err != nil {
		err = fmt.Errorf("redisstore: decode record %q: %w", texts[11], err)
	}
	return r, err
}
