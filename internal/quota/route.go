package quota

import (
	"hash/maphash"
	"strings"
	"sync/atomic"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// mostRoutes is of how many routes the bucket is remembered, over all servers.
const mostRoutes = 16384

// namedBucket is a bucket as its server names it.
type namedBucket struct {
	name string
	// ofID is true when there is one for each id in the path: Discord's buckets
	// are those of a kind of request, and each channel, guild or webhook has its
	// own (https://discord.com/developers/docs/topics/rate-limits).
	ofID bool
	id   uint64 // what tells one apart that has no name
}

// bucketKey is one account's bucket.
type bucketKey struct {
	credential
	name string
	id   uint64
}

// route is a set of requests, and the bucket in which most of them were seen.
// Which bucket a request is in is known only when it is answered. So the next one
// to the same path goes by that, and one to a path never seen before by what is
// known of the paths beside it.
type route struct {
	bucket atomic.Pointer[namedBucket]
	votes  atomic.Int32
}

// vote tells the route that a request of it was in the bucket.
func (r *route) vote(bucket namedBucket, most int32) {
	known := r.bucket.Load()
	switch {
	case known != nil && *known == bucket:
		if r.votes.Load() < most {
			r.votes.Add(1)
		}
	case known == nil || r.votes.Add(-1) <= 0:
		elected := bucket // so that only an election allocates
		r.bucket.Store(&elected)
		r.votes.Store(1)
	}
}

const (
	mostVotes  = 8 // how sure a set of paths can be of its bucket
	routeDepth = 3 // how many leading segments of a path make a set of their own
)

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

// learnRoute remembers that the request was in the bucket named in its answer, and
// returns that.
func (l *Limiter) learnRoute(who *account, t *Ticket, said *ratelimitheader.State) *bucket {
	who.naming.Store(true)
	named := namedBucket{name: said.Bucket, ofID: said.PerID}
	k := l.routeKeys(who.who.scope, t.method, t.path)
	for i, key := range k.keys[:k.n] {
		most := int32(mostVotes)
		if i == 0 {
			most = 1 // its own answers
		}
		l.routes.Get(key).vote(named, most)
	}
	return l.bucket(who, named, k.id)
}

// bucket is the named bucket of the account.
func (l *Limiter) bucket(who *account, named namedBucket, id uint64) *bucket {
	if !named.ofID {
		id = named.id
	}
	b := l.buckets.Get(bucketKey{who.who, named.name, id})
	b.init(l, who, named.name, id)
	return b
}
