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
	id   uint64 // of one without a name: the route
}

// bucketKey is one account's bucket.
type bucketKey struct {
	credential
	name string
	id   uint64
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

// routeID identifies the route in all processes.
func (l *Limiter) routeID(method, path string) uint64 {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if looksLikeID(segment) {
			segments[i] = "*"
		}
	}
	return l.Hash(method + " " + strings.Join(segments, "/"))
}

// bucketOf is the bucket that the request is in, as far as is known.
func (l *Limiter) bucketOf(r *Request) *bucket {
	who := l.account(r)
	if !who.naming.Load() {
		return &who.shared
	}
	k := l.routeKeys(who.who.scope, r.Method, r.Path)
	for _, key := range k.keys[:k.n] {
		if known := l.routes.Peek(key); known != nil {
			if named := known.bucket.Load(); named != nil {
				return l.bucket(who, *named, k.id)
			}
		}
	}
	return &who.shared
}

// learnRoute remembers that the request was in that bucket, and returns it. An unnamed
// bucket is that of its route alone.
func (l *Limiter) learnRoute(who *quotaSet, t *Permit, named namedBucket) *bucket {
	who.naming.Store(true)
	k := l.routeKeys(who.who.scope, t.method, t.path)
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
	return l.bucket(who, named, k.id)
}

// markRejected remembers that an exhausted quota has rejected the route.
func (l *Limiter) markRejected(b *bucket, t *Permit) {
	key := l.routeKeys(b.account.Load().who.scope, t.method, t.path).keys[0]
	l.routes.Get(key).rejected.Store(true)
}

func (l *Limiter) wasRejected(b *bucket, method, path string) bool {
	r := l.routes.Peek(l.routeKeys(b.account.Load().who.scope, method, path).keys[0])
	return r != nil && r.rejected.Load()
}

// bucket is the named bucket of the account.
func (l *Limiter) bucket(who *quotaSet, named namedBucket, id uint64) *bucket {
	if !named.ofID {
		id = named.id
	}
	b := l.buckets.Get(bucketKey{who.who, named.name, id})
	b.init(l, who, named.name, id)
	return b
}
