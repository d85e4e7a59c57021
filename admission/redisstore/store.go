package redisstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed" // the scripts
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resilienthttp/resilienthttp/quotastore"
)

//go:embed head.lua
var headSource string

//go:embed take.lua
var takeSource string

//go:embed block.lua
var blockSource string

//nolint:gochecknoglobals // They are never changed.
var takeScript, blockScript = redis.NewScript(headSource + takeSource), redis.NewScript(headSource + blockSource)

// defaultPrefix is the prefix of the keys in Redis if Store.Prefix is empty.
const defaultPrefix = "quota:"

// Store is a quotastore.Store in Redis. It is safe for concurrent use; its fields must
// not change after its first use.
//
// It counts in microseconds, and rounds a Rule's Window up to them. Errors are those of
// go-redis and of the server, for example a server that is down, late, full (OOM),
// read-only (READONLY) or starting (LOADING). The last three take nothing. After any
// other error the units may have been taken.
type Store struct {
	// Client must be set: a *redis.Client, *redis.ClusterClient, *redis.Ring or another
	// redis.UniversalClient. The Store does not close it.
	Client redis.Scripter

	// Prefix is the prefix of the keys in Redis. "" means "quota:".
	Prefix string
}

var _ quotastore.Store = (*Store)(nil)

// maxGivenBack is the maximum number of units to return. No rule has more.
const maxGivenBack = 1 << 40

// Take implements quotastore.Store.
func (s *Store) Take(ctx context.Context, key string, want, minUnits int, r quotastore.Rule) (quotastore.Result, error) {
	if err := r.Validate(); err != nil {
		return quotastore.Result{}, err
	}
	if minUnits = max(min(minUnits, max(want, 0)), 0); minUnits > r.Capacity() {
		return quotastore.Result{}, quotastore.ErrExceedsBurst
	}
	sliding := 0
	if r.Sliding {
		sliding = 1
	}
	reply, err := s.run(ctx, takeScript, key,
		max(int64(min(want, r.Capacity())), -maxGivenBack), minUnits, r.Limit, microseconds(r.Window), r.Capacity(), sliding)
	if err != nil {
		return quotastore.Result{}, err
	}
	numbers, err := reply.Int64Slice()
	if err != nil || len(numbers) != 5 {
		return quotastore.Result{}, fmt.Errorf("redisstore: unexpected reply %v of the script: %w", reply.Val(), errors.Join(err))
	}
	return quotastore.Result{
		OK: numbers[0] == 1, Allowed: int(numbers[1]), Remaining: int(numbers[2]),
		ResetAfter: time.Duration(numbers[3]) * time.Microsecond,
		RetryAfter: time.Duration(numbers[4]) * time.Microsecond,
	}, nil
}

// Block implements quotastore.Store. The duration of the block is computed with this
// process's clock, and its end with the server's.
func (s *Store) Block(ctx context.Context, key string, until time.Time) error {
	left := time.Until(until)
	if left <= 0 {
		return ctx.Err()
	}
	_, err := s.run(ctx, blockScript, key, microseconds(left))
	return err
}

func (s *Store) run(ctx context.Context, script *redis.Script, key string, args ...any) (*redis.Cmd, error) {
	if s.Client == nil {
		return nil, errors.New("redisstore: Store.Client is not set")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	reply := script.Run(ctx, s.Client, []string{s.name(key)}, args...)
	if err := reply.Err(); err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	return reply, nil
}

// maxKeyLength is the length up to which a key is stored as it is. Of a longer key the
// SHA-256 is stored.
const maxKeyLength = 256

// name returns the name of the key in Redis.
func (s *Store) name(key string) string {
	if len(key) > maxKeyLength {
		sum := sha256.Sum256([]byte(key))
		key = "sha256:" + hex.EncodeToString(sum[:])
	}
	return cmp.Or(s.Prefix, defaultPrefix) + key
}

// microseconds returns the duration in microseconds, rounded up.
func microseconds(d time.Duration) int64 {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	return us
}
