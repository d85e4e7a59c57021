package admission

import "hash/maphash"

// knownKeys remembers by a hash which keys were admitted, and how often lately. A key is known
// when it was admitted in knownSeconds different seconds. Of two keys with one bucket, the one
// that was admitted in more seconds stays. About as many keys as buckets are remembered.
type knownKeys struct {
	seed    maphash.Seed
	second  uint16 // the present one
	window  uint16 // counts windows
	lately  uint32 // admitted requests; half of them are forgotten with each window
	buckets []knownKey
}

// knownKey is a key in knownKeys.
type knownKey struct {
	mark    uint32
	second  uint16 // in which the key was last admitted
	window  uint16 // of came and lately
	came    uint16 // requests of the key that came
	lately  uint8  // admitted requests of the key, as knownKeys.lately
	seconds uint8  // different seconds in which the key was admitted
}

const (
	// knownBuckets is a power of two.
	knownBuckets = 1 << 16

	// knownSeconds is the number of different seconds after which a key is known. More are
	// remembered, because an admitted request of another key with the bucket takes one.
	knownSeconds, mostSeconds = 3, 255

	// latelyWindow is the number of admitted requests in a window.
	latelyWindow = 128

	// A light key gets at most one of lightRatio requests, and a few more at first.
	lightRatio, lightSlack = 5, 4
)

func (k *knownKeys) init() {
	k.seed, k.buckets = maphash.MakeSeed(), make([]knownKey, knownBuckets)
}

// mark returns the hash of a key, which is not zero.
func (k *knownKeys) mark(key string) uint64 { return maphash.String(k.seed, key) | 1<<63 }

// find returns the bucket of a key, with its counts of the present window, and whether the
// bucket is the key's.
func (k *knownKeys) find(mark uint64) (b *knownKey, found bool) {
	b = &k.buckets[mark%knownBuckets]
	passed := min(k.window-b.window, 15)
	b.lately, b.came, b.window = b.lately>>passed, b.came>>passed, k.window
	return b, uint64(b.mark) == mark>>32
}

func (k *knownKeys) has(mark uint64) bool {
	b, found := k.find(mark)
	return found && b.seconds >= knownSeconds
}

// come counts a request that comes.
func (k *knownKeys) come(mark uint64) {
	if b, found := k.find(mark); found && b.came < 1<<15 {
		b.came++
	}
}

// add counts a request that is admitted.
func (k *knownKeys) add(mark uint64) {
	if k.lately++; k.lately == 2*latelyWindow {
		k.lately /= 2
		k.window++
	}
	b, found := k.find(mark)
	switch {
	case !found && b.second == k.second && b.seconds > 0:
		return // the bucket's key was just admitted
	case !found && b.seconds > 1:
		b.seconds--
		return
	case !found:
		*b = knownKey{mark: uint32(mark >> 32), seconds: 1, window: k.window, came: 1}
	case b.second != k.second:
		b.seconds = min(b.seconds, mostSeconds-1) + 1
	}
	b.second = k.second
	b.lately++
}

// isLight reports whether a key got a fifth of the requests at most, and does not send more than
// all keys get.
func (k *knownKeys) isLight(mark uint64) bool {
	b, _ := k.find(mark)
	return lightRatio*int(b.lately) <= int(k.lately)+lightRatio*lightSlack && int(b.came) <= int(k.lately)+lightSlack
}
