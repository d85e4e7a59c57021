package quota

import (
	"sync"
	"sync/atomic"

	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// credential is whose quota it is: servers count by account, not by client.
type credential struct {
	scope scope.Key
	hash  uint64
}

func (c credential) clone() credential { return credential{c.scope.Clone(), c.hash} }

// account is what a server has said to one credential.
type account struct {
	once    sync.Once
	who     credential
	closing closing     // of all its buckets
	naming  atomic.Bool // the server names buckets
	shared  bucket      // of what it does not name
}

// account is whose quota the request uses. The classes of a scope share it.
func (l *Limiter) account(r *Request) *account {
	who := credential{scope.Key{Name: r.Scope.Name}, r.Credential}
	account := l.accounts.Get(who)
	account.once.Do(func() {
		account.who = who.clone()
		account.shared.init(l, account)
	})
	return account
}

// busy keeps what says something from being forgotten first.
func (who *account) busy() bool { return who.closing.busy() || who.shared.busy() }
