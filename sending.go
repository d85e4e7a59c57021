package resilienthttp

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
)

// sending is what Base has done to send an attempt, as far as its hooks and a Connections tell. It is safe for concurrent use: Base
// may go on after it has returned.
type sending struct {
	hooks   atomic.Pointer[httptrace.ClientTrace] // of the request; nil: Base has not asked for them
	reached atomic.Uint32                         // how far Base came: reachedDial and so on
	copied  atomic.Bool                           // Base has asked for a copy of the body
	dialed  atomic.Uint32                         // new connections that Base got for the attempt since its last response

	pool        atomic.Uint32               // 1 + number of its pool of Connections; zero means none
	conn        atomic.Pointer[watchedConn] // its HTTP/2 connection of Connections
	readsBefore atomic.Uint64               // watchedConn.reads when it got the connection
}

// The progress of an attempt in Base.
const (
	reachedDial     uint32 = 1 + iota // Base has requested a connection
	reachedConn                       // Base has a connection
	reachedResponse                   // a response has come, so what Base sends now is another request
	reachedAgain                      // Base has requested another one, because net/http sends the request again
)

// begun reports whether Base has asked for a connection. A Base that hides its connections never does.
func (s *sending) begun() bool { return s.reached.Load() != 0 }

// resent reports whether net/http has sent the request again by itself. It asks for another body then, as a signer does, and of a Base
// that hides its connections nothing else is known.
func (s *sending) resent() bool {
	reached := s.reached.Load()
	return reached == reachedAgain || reached == 0 && s.copied.Load()
}

func (s *sending) onGetConn(string) {
	if !s.reached.CompareAndSwap(0, reachedDial) {
		s.reached.CompareAndSwap(reachedConn, reachedAgain)
	}
}

// gotConn notes that Base has a connection, the first or another one.
func (s *sending) gotConn() {
	first := s.reached.CompareAndSwap(0, reachedConn) || s.reached.CompareAndSwap(reachedDial, reachedConn)
	if !first && !s.reached.CompareAndSwap(reachedResponse, reachedConn) {
		s.reached.Store(reachedAgain) // HTTP/2 does not always report that it requests one
	}
}

// gotResponse notes that what Base sends now is another request, such as that of a signer after the one for its token: net/http
// sends a request again only until there is a response.
func (s *sending) gotResponse() {
	s.dialed.Store(0)
	s.reached.CompareAndSwap(reachedConn, reachedResponse)
}

// isSilent reports whether the connection has delivered nothing since the attempt got it.
func (s *sending) isSilent() bool {
	conn := s.conn.Load()
	return conn != nil && conn.reads.Load() == s.readsBefore.Load()
}

// traceKey is the key under which net/http finds the hooks of a request. As a value of the attempt's own context they
// need no further context.
var traceKey = func() (key any) { //nolint:gochecknoglobals // never written to
	httptrace.ContextClientTrace(keyOf{context.Background(), &key})
	return key
}()

// keyOf is a context that notes the key for which it was asked.
type keyOf struct {
	context.Context //nolint:containedctx // it is a context

	key *any
}

func (k keyOf) Value(key any) any {
	*k.key = key
	return nil
}

// trace returns the hooks of the request. They note whether Base got a connection, and which. Without one, an EOF, a reset
// or a timeout proves that nothing was sent.
func (a *attempt) trace() *httptrace.ClientTrace {
	s := &a.sending
	if hooks := s.hooks.Load(); hooks != nil {
		return hooks
	}
	hooks := &httptrace.ClientTrace{GetConn: s.onGetConn, GotConn: a.onGotConn, GotFirstResponseByte: s.gotResponse}
	if ctx := a.call.ctx; httptrace.ContextClientTrace(ctx) != nil {
		httptrace.WithClientTrace(ctx, hooks) // adds the caller's hooks
	}
	s.hooks.CompareAndSwap(nil, hooks) // another goroutine may have been first
	return s.hooks.Load()
}

// maxDialed is the number of new connections without a response for one attempt at which it ends. A server that answers each
// request by a GOAWAY makes net/http send it again without an end, on a new connection each time. (Reused connections may be dead.)
const maxDialed = 4

var errSentAgain = neterr.New("net/http sent the request again and again, on new connections")

func (a *attempt) onGotConn(info httptrace.GotConnInfo) {
	s := &a.sending
	if !info.Reused && s.dialed.Add(1) == maxDialed {
		a.endWith(errSentAgain)
	}
	s.gotConn()
	watched, protocol := watchedBelow(info.Conn)
	if watched == nil {
		return // Base is not a Connections
	}
	if protocol == protocolHTTP2 {
		// In this order, because a goroutine that sees the connection compares its reads with those before.
		s.readsBefore.Store(watched.reads.Load())
		s.conn.Store(watched)
		a.call.avoid.Or(1 << watched.pool)
	}
	if record := a.visit.Record; record.protocol.Load() != protocol { // a store would take it from the caches of all others
		record.protocol.Store(protocol)
	}
}
