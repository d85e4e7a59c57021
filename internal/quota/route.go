package quota

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// maxRoutes is of how many routes the bucket is kept, over all servers.
const maxRoutes = 16384

// namedBucket is a bucket as its server names it.
type namedBucket struct {
	name string
	// ofID is true when there is one for each id in the path: Discord's buckets
	// are those of a kind of request, and each channel, guild or webhook has its
	// own (https://discord.com/developers/docs/topics/rate-limits).
	ofID bool
}

// route is a set of requests, and the bucket in which the last of them was. Which bucket a
// request is in is known only from its response. So the next one to the same path uses
// that, and one to an unknown path what is known of the paths beside it.
type route struct {
	bucket   atomic.Pointer[namedBucket]
	rejected atomic.Bool // by an exhausted quota
}

const routeDepth = 3 // how many leading segments of a path make a set of their own

// routeKeys are the hashes of the sets that a request is in: of its method and
// path, with what looks like an id left out; then of the path's beginnings, the
// longest first.
type routeKeys struct {
	keys [1 + routeDepth]uint64
	n    int
	id   uint64 // the first in the path
}

func (l *Limiter) routeKeys(scope, method, path string) (k routeKeys) {
	var h maphash.Hash
	h.SetSeed(l.seed)
	_, _ = h.WriteString(scope)
	var beginnings [routeDepth]uint64
	path = strings.TrimPrefix(path, "/")
	for path != "" {
		var segment string
		segment, path, _ = strings.Cut(path, "/")
		if looksLikeID(segment) {
			if k.id == 0 {
				k.id = l.Hash(segment)
			}
			segment = "*"
		}
		_ = h.WriteByte('/')
		_, _ = h.WriteString(segment)
		if path != "" && k.n < routeDepth {
			beginnings[k.n] = h.Sum64()
			k.n++
		}
	}
	_ = h.WriteByte(' ')
	_, _ = h.WriteString(method)
	k.keys[0] = h.Sum64()
	for i := range k.n {
		k.keys[k.n-i] = beginnings[i]
	}
	k.n++
	return k
}

// looksLikeID reports whether a segment of a path is a number, a UUID, a hash, or
// long and with digits in it.
func looksLikeID(segment string) bool {
	digits, others := false, false
	for i := range len(segment) {
		switch c := segment[i]; {
		case c >= '0' && c <= '9':
			digits = true
		case c >= 'a' && c <= 'f', c >= 'A' && c <= 'F', c == '-', c == '_':
		default:
			others = true
		}
	}
	return digits && (!others || len(segment) >= 16)
}

// bucketOf is the bucket that the request is in, as far as is known.
func (s *Set) bucketOf(credential uint64, method, path string) *bucket {
	l := s.limiter
	key := bucketKey{scope: s.scope, credential: credential}
	general := l.bucket(key, nil)
	if !s.named.Load() {
		return general
	}
	k := l.routeKeys(s.scope, method, path)
	for _, hash := range k.keys[:k.n] {
		if known := l.routes.Peek(hash); known != nil {
			if named := known.bucket.Load(); named != nil {
				return l.bucket(named.key(key, &k), general)
			}
		}
	}
	return general
}

// key is the bucket's, for a credential whose general bucket has the key. A bucket without a
// name is that of its route.
func (n *namedBucket) key(key bucketKey, route *routeKeys) bucketKey {
	key.name = n.name
	switch {
	case n.name == "":
		key.id = route.keys[0]
	case n.ofID:
		key.id = route.id
	}
	return key
}

// learnRoute remembers that the request was in that bucket, and returns it.
func (s *Set) learnRoute(p *Permit, named namedBucket) *bucket {
	s.named.Store(true)
	l := s.limiter
	k := l.routeKeys(s.scope, p.method, p.path)
	keys := k.keys[:k.n]
	if named.name == "" {
		keys = keys[:1]
	}
	for _, key := range keys {
		r := l.routes.Get(key)
		if known := r.bucket.Load(); known == nil || *known != named {
			learned := named // so that only a change allocates
			r.bucket.Store(&learned)
		}
	}
	key := bucketKey{scope: s.scope, credential: p.credential}
	return l.bucket(named.key(key, &k), l.bucket(key, nil))
}

// markRejected remembers that an exhausted quota has rejected the route.
func (s *Set) markRejected(method, path string) {
	key := s.limiter.routeKeys(s.scope, method, path).keys[0]
	s.limiter.routes.Get(key).rejected.Store(true)
}

func (s *Set) wasRejected(method, path string) bool {
	r := s.limiter.routes.Peek(s.limiter.routeKeys(s.scope, method, path).keys[0])
	return r != nil && r.rejected.Load()
}
