package quota

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/resilienthttp/resilienthttp/internal/sharedquota"
)

// accountKey identifies the quotas of one credential in a scope. Servers count requests by credential,
// not by client. Its strings are those of the Set.
type accountKey struct {
	scope      string
	credential uint64
	key        string // Request.Key
}

// account is the quotas of one credential and key: the general bucket, and those of the Limiter that
// routes have of their own.
type account struct {
	accountKey

	limiter *Limiter
	known   atomic.Bool // a response has shown a quota or was a rejection
	mu      sync.Mutex  // guards all buckets of the account
	general bucket
}

// bucketKey identifies a bucket that routes have of their own. Those of an evicted account are never
// found again.
type bucketKey struct {
	account *account
	name    string // the server's; may be "" for an id
	id      uint64
}

// init makes a bucket of an account.
func (b *bucket) init(k bucketKey) {
	a := k.account
	b.account, b.limiter, b.name, b.Mu, b.Gate = a, a.limiter, k.name, &a.mu, b
	if l := a.limiter; l.Shared != nil && l.Limit == 0 {
		b.shared = sharedquota.New(l.Shared, fmt.Sprintf("quota|%s|%x|%s|%x%s", a.scope, a.credential, k.name, k.id, a.key))
	}
}
