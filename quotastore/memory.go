package quotastore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"time"
)

const (
	defaultKeys  = 65_536
	memoryShards = 64
	minShardKeys = 16 // with fewer keys in each shard there are fewer shards

	// maxKeyLength is the length up to which a key is stored as it is. Of a longer key
	// the SHA-256 is stored.
	maxKeyLength = 256
)

// Memory is a Store in the memory of one process. The zero value is ready for use.
// It is safe for concurrent use and must not be copied. Its clock is monotonic.
//
// It holds at most MaxKeys keys, of about 200 bytes each, with Rule.Sliding up to
// 1.8 KB. A key with its whole quota is removed first. If there is none, a new key
// evicts, of 16 keys, the one that had used the smallest part of its limit at its last
// Take; of equals, the one that has its whole quota first. Blocked keys are evicted last.
//
// So made-up keys do not evict a key that is used up, unless about MaxKeys of them are
// used up too: each unit that an attacker gains costs about MaxKeys units.
type Memory struct {
	// MaxKeys is the maximum number of keys. Zero means 65,536. It is read at the first use.
	MaxKeys int

	once   sync.Once
	epoch  time.Time
	seed   maphash.Seed
	shards []memoryShard
}

var _ Store = (*Memory)(nil)

// memoryShard holds the keys of one hash value.
type memoryShard struct {
	mu    sync.Mutex
	index map[string]int
	keys  []account
	max   int
	hand  int      // the next key of a sample
	_     [64]byte // keeps shards on different cache lines
}

// account is the state of one key.
type account struct {
	key     string
	bucket  bucket
	window  window
	blocked int64   // the end of the block; zero means none
	whole   int64   // the time at which the key's whole quota is available
	used    float32 // the part of the limit that was used at the last Take, 0 to 1
}

func (m *Memory) init() {
	maxKeys := m.MaxKeys
	if maxKeys <= 0 {
		maxKeys = defaultKeys
	}
	shards := memoryShards
	for shards > 1 && maxKeys/shards < minShardKeys {
		shards /= 2
	}
	m.epoch, m.seed, m.shards = time.Now(), maphash.MakeSeed(), make([]memoryShard, shards)
	for i := range m.shards {
		s := &m.shards[i]
		s.index = make(map[string]int)
		s.max = maxKeys / shards
		if i < maxKeys%shards {
			s.max++
		}
	}
}

// Take implements Store. Its cost does not depend on the number of keys.
func (m *Memory) Take(ctx context.Context, key string, want, minUnits int, r Rule) (Result, error) {
	if err := r.Validate(); err != nil {
		return Result{}, err
	}
	if minUnits = min(minUnits, max(want, 0)); minUnits > r.Capacity() {
		return Result{}, ErrExceedsBurst
	}
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	key = storedKey(key)
	s := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	// The time is read under the lock, so that a key's time never goes backwards.
	now := m.now()
	return s.account(key, now).take(now, max(int64(want), -maxUnits), int64(minUnits), &r), nil
}

// Block implements Store.
func (m *Memory) Block(ctx context.Context, key string, until time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	key = storedKey(key)
	s := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := time.Until(until); left > 0 {
		now := m.now()
		a := s.account(key, now)
		a.blocked = max(a.blocked, now+min(int64(left), math.MaxInt64-now))
		a.whole = max(a.whole, a.blocked)
	}
	return nil
}

// Len returns the number of keys that are held.
func (m *Memory) Len() int {
	m.once.Do(m.init)
	n := 0
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		n += len(s.keys)
		s.mu.Unlock()
	}
	return n
}

func (m *Memory) now() int64 { return int64(time.Since(m.epoch)) }

func (m *Memory) shard(key string) *memoryShard {
	m.once.Do(m.init)
	return &m.shards[maphash.String(m.seed, key)&uint64(len(m.shards)-1)]
}

// storedKey returns the key as it is stored.
func storedKey(key string) string {
	if len(key) <= maxKeyLength {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// account returns the key's account, a new one if there is none. The caller holds the
// shard's lock.
func (s *memoryShard) account(key string, now int64) *account {
	if i, ok := s.index[key]; ok {
		return &s.keys[i]
	}
	a, i := s.free(now)
	slots := a.window.slots[:0]
	if cap(slots) > windowSlots/4 {
		slots = nil
	}
	// The key is cloned because it may be a part of a request's larger string.
	*a = account{key: strings.Clone(key), window: window{slots: slots}}
	a.bucket.at = now
	s.index[a.key] = i
	return a
}

// free returns an account for a new key: that of a key with its whole quota, an unused
// one, or that of the key to evict, as Memory's documentation says.
func (s *memoryShard) free(now int64) (*account, int) {
	// While accounts are unused, two keys are checked for each new one. So keys that
	// are no longer used are removed before the shard is full.
	sample, full := 2, len(s.keys) == s.max
	if full {
		sample = 16
	}
	victim := 0
	lowest := float32(math.MaxFloat32)
	for n := 0; n < len(s.keys) && (n < sample || full && lowest > 1); n++ {
		i := s.hand
		if s.hand++; s.hand == len(s.keys) {
			s.hand = 0
		}
		a := &s.keys[i]
		if a.whole <= now {
			delete(s.index, a.key)
			return a, i
		}
		used := a.used
		if a.blocked > now {
			used = 2
		}
		if used < lowest || used == lowest && a.whole < s.keys[victim].whole {
			victim, lowest = i, used
		}
	}
	if !full {
		s.keys = append(s.keys, account{})
		victim = len(s.keys) - 1
	} else {
		delete(s.index, s.keys[victim].key)
	}
	return &s.keys[victim], victim
}

// take does what Store.Take does, for one key. The caller holds the shard's lock.
func (a *account) take(now, want, minUnits int64, r *Rule) Result {
	blocked := a.blocked - now
	if blocked > 0 && want > 0 {
		want = 0
	}
	var result Result
	var taken, left, wait, reset int64
	if r.Sliding {
		w := &a.window
		taken, result.OK = w.take(now, want, minUnits, r)
		left, wait, reset = w.left(r), w.wait(now, minUnits, r), w.reset(now, r)
	} else {
		b := &a.bucket
		taken, result.OK = b.take(now, want, minUnits, r)
		left, wait, reset = b.left(r), b.wait(minUnits, r), b.reset(r)
	}
	left = max(left, 0)
	a.used = 1 - float32(left)/float32(r.Capacity())
	if blocked > 0 {
		left, wait, reset = 0, max(wait, blocked), max(reset, blocked)
		result.OK = result.OK && minUnits <= 0
	}
	result.Allowed, result.Remaining, result.ResetAfter = int(taken), int(left), time.Duration(reset)
	if !result.OK {
		result.RetryAfter = time.Duration(wait)
	}
	a.whole = now + min(reset, math.MaxInt64-now)
	return result
}
