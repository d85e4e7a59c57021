package redisstore

import (
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
var head string

//go:embed take.lua
var take string

//go:embed block.lua
var closing string

//nolint:gochecknoglobals // They are never changed.
var takeScript, blockScript = redis.NewScript(head + take), redis.NewScript(head + closing)

// DefaultPrefix is what keys begin with if Store.Prefix is not set.
const DefaultPrefix = "quota:"

// Store is a quotastore.Store in Redis. It is safe for concurrent use; its fields must
// not change after its first use.
//
// It counts in microseconds: a Rule's Window is rounded up to them. Errors are those of
// go-redis and of the server: of one that is down, too slow for the context, full (OOM),
// read-only (READONLY) or starting (LOADING). Then it is not known whether anything was
// taken, save that those last three take nothing.
type Store struct {
	// Client is needed: a *redis.Client, *redis.ClusterClient, *redis.Ring or any
	// redis.UniversalClient. The store does not close it.
	Client redis.Scripter

	// Prefix is what the names of its keys begin with. "" means DefaultPrefix.
	Prefix string
}

var _ quotastore.Store = (*Store)(nil)

// mostGiven bounds what is given back: no rule has more.
const mostGiven = 1 << 40

// Take implements quotastore.Store.
func (s *Store) Take(ctx context.Context, key string, want, least int, r quotastore.Rule) (quotastore.Result, error) {
	if err := r.Validate(); err != nil {
		return quotastore.Result{}, err
	}
	if least = max(min(least, max(want, 0)), 0); least > r.Capacity() {
		return quotastore.Result{}, quotastore.ErrExceedsBurst
	}
	sliding := 0
	if r.Sliding {
		sliding = 1
	}
	answer, err := s.run(ctx, takeScript, key,
		max(int64(min(want, r.Capacity())), -mostGiven), least, r.Limit, microseconds(r.Window), r.Capacity(), sliding)
	if err != nil {
		return quotastore.Result{}, err
	}
	numbers, err := answer.Int64Slice()
	if err != nil || len(numbers) != 5 {
		return quotastore.Result{}, fmt.Errorf("redisstore: %v is no answer of the script: %w", answer.Val(), errors.Join(err))
	}
	return quotastore.Result{
		OK: numbers[0] == 1, Allowed: int(numbers[1]), Remaining: int(numbers[2]),
		ResetAfter: time.Duration(numbers[3]) * time.Microsecond,
		RetryAfter: time.Duration(numbers[4]) * time.Microsecond,
	}, nil
}

// Close implements quotastore.Store. Until when it is closed is told by this process's
// clock, and kept by the server's.
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
	answer := script.Run(ctx, s.Client, []string{s.name(key)}, args...)
	if err := answer.Err(); err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	return answer, nil
}

// longestKey is the longest that is kept as it is; of a longer one its SHA-256 is.
const longestKey = 256

func (s *Store) name(key string) string {
	if len(key) > longestKey {
		sum := sha256.Sum256([]byte(key))
		key = "sha256:" + hex.EncodeToString(sum[:])
	}
	if s.Prefix == "" {
		return DefaultPrefix + key
	}
	return s.Prefix + key
}

// microseconds is the time rounded up to them.
func microseconds(d time.Duration) int64 {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	return us
}
