package quota

import (
	"strings"
	"sync"
	"sync/atomic"
)

// credential is whose quota it is: servers count by account, not by client.
type credential struct {
	scope string // its classes share a quota
	hash  uint64
}

func (c credential) clone() credential { return credential{strings.Clone(c.scope), c.hash} }

// account is what a server has said to one credential.
type account struct {
	once    sync.Once
	who     credential
	closing closings    // of all its buckets
	naming  atomic.Bool // the server names buckets, or
	apart   atomic.Bool // routes were seen to have some of their own
	shared  bucket      // of what it does not name
}

// account is whose quota the request uses.
func (l *Limiter) account(r *Request) *account {
	who := credential{r.Scope.Name, r.Credential}
	account := l.accounts.Get(who)
	account.once.Do(func() {
		account.who = who.clone()
		account.shared.init(l, account, "", 0)
	})
	return account
}

// busy keeps what says something from being forgotten first.
func (who *account) busy() bool { return who.closing.busy() || who.shared.busy() }
