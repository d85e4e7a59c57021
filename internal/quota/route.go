package quota

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// namedBucket is the name of a bucket.
type namedBucket struct {
	name string
	// ofID is true if there is a bucket for each ID in the path. Discord's buckets are those of a
	// kind of request, and each channel, guild or webhook has its own
	// (https://discord.com/developers/docs/topics/rate-limits).
	ofID bool
}

// route is a set of requests, with the bucket of the last of them. Only its response tells the
// bucket of a request. So the next request to the same path uses that bucket, and a request to an
// unknown path uses the bucket of paths with the same beginning.
type route struct {
	bucket atomic.Pointer[namedBucket]
}

const routeDepth = 3 // number of leading segments of a path that have a set

// routeKeys are the hashes of a request's sets: first of its method and path, with IDs replaced,
// and then of the path's beginnings, the longest first.
type routeKeys struct {
	keys [1 + routeDepth]uint64
	n    int
	id   uint64 // hash of the first ID in the path
}

func (l *Limiter) routeKeys(scope, method, path string) (k routeKeys) {
	h := maphash.String(seed, scope)
	extend := func(text string) { h = (h ^ maphash.String(seed, text)) * 0x9e3779b97f4a7c15 } // odd: nothing is lost
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
		extend(segment)
		if path != "" && k.n < routeDepth {
			beginnings[k.n] = h
			k.n++
		}
	}
	h = ^h // a method is no segment
	extend(method)
	k.keys[0] = h
	for i := range k.n {
		k.keys[k.n-i] = beginnings[i]
	}
	k.n++
	return k
}

// Route returns a hash of a method and a path with IDs replaced.
func (l *Limiter) Route(method, path string) uint64 { return l.routeKeys("", method, path).keys[0] }

// looksLikeID reports whether a segment of a path is a number, a UUID, a hash, or a long text
// with digits.
func looksLikeID(segment string) bool {
	digits, others := false, false
	for i := range len(segment) {
		switch c := segment[i]; {
		case c >= '0' && c <= '9':
			digits = true
		case c >= 'a' && c <= 'f', c >= 'A' && c <= 'F', c == '-':
		default:
			others = true
		}
	}
	return digits && (!others || len(segment) >= 16)
}

// bucketOf returns the bucket of the request, as far as it is known.
func (s *Set) bucketOf(r *Request) *bucket {
	key := r.Key
	if key != "" {
		key = s.key(key)
	}
	a := s.limiter.accounts.Get(accountKey{scope: s.scope, credential: r.Credential, key: key})
	if !s.named.Load() {
		return &a.general
	}
	return s.routeBucket(a, r.Method, r.Path)
}

// routeBucket returns the bucket that a response has named for a route, or the general one.
func (s *Set) routeBucket(a *account, method, path string) *bucket {
	l := s.limiter
	k := l.routeKeys(s.scope, method, path)
	for _, hash := range k.keys[:k.n] {
		if known := l.routes.Peek(hash); known != nil {
			if named := known.bucket.Load(); named != nil {
				return l.buckets.Get(named.key(a, &k))
			}
		}
	}
	return &a.general
}

// key returns the key of the bucket. A bucket without a name is that of its route.
func (n *namedBucket) key(a *account, route *routeKeys) bucketKey {
	key := bucketKey{account: a, name: n.name}
	switch {
	case n.name == "":
		key.id = route.keys[0]
	case n.ofID:
		key.id = route.id
	}
	return key
}

// learnRoute records the bucket of the request, and returns it.
func (s *Set) learnRoute(p *Permit, named namedBucket) *bucket {
	if !s.named.Load() { // a store at each response would contend for the cache line
		s.named.Store(true)
	}
	l := s.limiter
	k := l.routeKeys(s.scope, p.method, p.path)
	keys := k.keys[:k.n]
	if named.name == "" {
		keys = keys[:1]
	}
	for _, key := range keys {
		r := l.routes.Get(key)
		if known := r.bucket.Load(); known == nil || *known != named {
			r.bucket.Store(new(named))
		}
	}
	return l.buckets.Get(named.key(p.bucket.account, &k))
}

// ofOtherRoute reports whether the response is of another route than the one that has shown the quota, and of another quota: it
// shows another limit, half of the limit more than that route has left, or nothing although it is served.
func (b *bucket) ofOtherRoute(p *Permit, a *Response, now time.Time) bool {
	// The routes of a named bucket share what the server names.
	if b != &b.account.general {
		return false
	}
	elsewhere := func(d *dimension) bool {
		last, _ := p.set.route(d.method, d.path)
		route, _ := p.set.route(p.method, p.path)
		return route != last
	}
	// The response shows no count, but those of other routes do.
	if a.counted() && len(a.Quota.Dimensions) == 0 {
		return slices.ContainsFunc(b.dims, func(d dimension) bool { return d.shownOnSuccess && d.standing == followed && elsewhere(&d) })
	}
	return slices.ContainsFunc(a.Quota.Dimensions, func(field ratelimitheader.Dimension) bool {
		d := b.known(field.Name)
		if d == nil || d.limit <= 0 {
			return false
		}
		if _, changed := d.newLimit(&field); !changed && !d.rises(field.Remaining, b.unseen(p), now) {
			return false
		}
		return elsewhere(d)
	})
}

// unseen returns how many requests the server may have counted after that of the permit.
func (b *bucket) unseen(p *Permit) int64 { return int64(b.version-p.version) + b.inflight }

// route returns the hash of a request's route, and with the ID in its path.
func (s *Set) route(method, path string) (route, withID uint64) {
	k := s.limiter.routeKeys(s.scope, method, path)
	return k.keys[0], k.keys[0] ^ k.id
}
