package admission

import "hash/maphash"

// knownKeys remembers which keys were admitted, by a hash. A newer key may replace an older
// one: about as many as the buckets are remembered.
type knownKeys struct {
	seed    maphash.Seed
	buckets []uint32
}

// knownBuckets is a power of two.
const knownBuckets = 1 << 16

func (k *knownKeys) init() {
	k.seed, k.buckets = maphash.MakeSeed(), make([]uint32, knownBuckets)
}

// mark returns the hash of a key, which is not zero.
func (k *knownKeys) mark(key string) uint64 { return maphash.String(k.seed, key) | 1<<63 }

func (k *knownKeys) has(mark uint64) bool {
	return uint64(k.buckets[mark%knownBuckets]) == mark>>32
}

func (k *knownKeys) add(mark uint64) { k.buckets[mark%knownBuckets] = uint32(mark >> 32) }
