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
	shardKeys    = 16 // at least, or there are fewer shards

	// longestKey is the longest that is kept as it is; of a longer one its SHA-256
	// is.
	longestKey = 256
)

// Memory is a Store in the memory of one process. The zero value is ready for use.
// It is safe for concurrent use and must not be copied.
//
// It never holds more than MaxKeys keys. One that has all of its quota again needs no
// place and makes room for others; when all places are taken, a new key takes that of
// one which is among those that would be whole again first, and begins anew when it
// comes back. So strangers who make up keys take the places of each other, and hardly
// that of a key which has used up its quota.
//
// A key takes some 200 bytes, with Rule.Sliding up to 1.8 KB. Its clock is the
// monotonic one: setting the machine's clock does not matter.
type Memory struct {
	// MaxKeys is how many keys are held; 0: 65,536. It is read at first use.
	MaxKeys int

	once   sync.Once
	epoch  time.Time
	seed   maphash.Seed
	shards []memoryShard
}

var _ Store = (*Memory)(nil)

// memoryShard is a part of the keys: those that hash to it.
type memoryShard struct {
	mu    sync.Mutex
	index map[string]int
	keys  []account
	most  int
	hand  int      // where a place is looked for next
	_     [64]byte // so that neighbours do not share a cache line
}

// account is what is known of one key.
type account struct {
	key    string
	bucket bucket
	window window
	closed int64 // until then; 0: never was
	whole  int64 // when there will be nothing left to remember
}

func (m *Memory) init() {
	most := m.MaxKeys
	if most <= 0 {
		most = defaultKeys
	}
	shards := memoryShards
	for shards > 1 && most/shards < shardKeys {
		shards /= 2
	}
	m.epoch, m.seed, m.shards = time.Now(), maphash.MakeSeed(), make([]memoryShard, shards)
	for i := range m.shards {
		s := &m.shards[i]
		s.index = make(map[string]int)
		s.most = most / shards
		if i < most%shards {
			s.most++
		}
	}
}

// Take implements Store. It takes no longer for many keys than for few.
func (m *Memory) Take(ctx context.Context, key string, want, least int, r Rule) (Result, error) {
	if err := r.Validate(); err != nil {
		return Result{}, err
	}
	if least = min(least, max(want, 0)); least > r.Capacity() {
		return Result{}, ErrExceedsBurst
	}
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	key = bounded(key)
	s := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	// Under the lock, so that a key's time never goes backwards.
	now := m.now()
	return s.account(key, now).take(now, max(int64(want), -mostUnits), int64(least), &r), nil
}

// Close implements Store.
func (m *Memory) Block(ctx context.Context, key string, until time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	key = bounded(key)
	s := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := time.Until(until); left > 0 {
		now := m.now()
		a := s.account(key, now)
		a.closed = max(a.closed, now+min(int64(left), math.MaxInt64-now))
		a.whole = max(a.whole, a.closed)
	}
	return nil
}

// Len is how many keys are held.
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

// bounded is the key as it is kept.
func bounded(key string) string {
	if len(key) <= longestKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// account is that of the key. The shard is locked.
func (s *memoryShard) account(key string, now int64) *account {
	if i, ok := s.index[key]; ok {
		return &s.keys[i]
	}
	i, taken := s.place(now)
	a := &s.keys[i]
	if taken {
		delete(s.index, a.key)
	}
	slots := a.window.slots[:0]
	if cap(slots) > windowSlots/4 {
		slots = nil
	}
	*a = account{key: strings.Clone(key), window: window{slots: slots}} // it may be a piece of a request
	a.bucket.at = now
	s.index[a.key] = i
	return a
}

// place is where a new key goes: where one was that is whole again, a free one, or
// where one was of those that would be whole first. taken says that a key has to make
// room.
func (s *memoryShard) place(now int64) (i int, taken bool) {
	const few, many = 2, 8
	look := few // so that keys which do not come back make room before there is none
	if len(s.keys) == s.most {
		look = many
	}
	best := -1
	for range min(look, len(s.keys)) {
		i := s.hand
		if s.hand++; s.hand == len(s.keys) {
			s.hand = 0
		}
		if best < 0 || s.keys[i].whole < s.keys[best].whole {
			best = i
		}
		if s.keys[best].whole <= now {
			return best, true
		}
	}
	if len(s.keys) < s.most {
		s.keys = append(s.keys, account{})
		return len(s.keys) - 1, false
	}
	return best, true
}

// take is what Store.Take promises of one key. The shard is locked.
func (a *account) take(now, want, least int64, r *Rule) Result {
	closed := a.closed - now
	if closed > 0 && want > 0 {
		want = 0
	}
	var t Result
	var taken, left, wait, reset int64
	if r.Sliding {
		w := &a.window
		taken, t.OK = w.take(now, want, least, r)
		left, wait, reset = w.left(r), w.wait(now, least, r), w.reset(now, r)
	} else {
		b := &a.bucket
		taken, t.OK = b.take(now, want, least, r)
		left, wait, reset = b.left(r), b.wait(least, r), b.reset(r)
	}
	if closed > 0 {
		left, wait, reset = 0, max(wait, closed), max(reset, closed)
		t.OK = t.OK && least <= 0
	}
	t.Allowed, t.Remaining, t.ResetAfter = int(taken), int(max(left, 0)), time.Duration(reset)
	if !t.OK {
		t.RetryAfter = time.Duration(wait)
	}
	a.whole = now + min(reset, math.MaxInt64-now)
	return t
}
