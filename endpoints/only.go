package endpoints

import (
	"context"

	"github.com/resilienthttp/resilienthttp/internal/route"
)

// onlyKey is for the name of the endpoint that a context permits.
type onlyKey struct{}

// WithEndpoint returns a context for calls that go only to the endpoint with the name (Attempt.Endpoint).
// The call behaves as with a list of this endpoint. A list without that name fails it, and sends nothing.
//
// It is for the repetition of a POST that may be done. A new call knows nothing of the one before, and
// without [Transport.SharedKeys] another endpoint does not know its key. So the second call must go to
// the endpoint of the last attempt of the first. See docs/endpoints.md.
func WithEndpoint(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, onlyKey{}, name)
}

// only returns a list of the target with the name, or nil.
func (t *Transport) only(name string) []route.Target {
	for i := range t.targets {
		if t.targets[i].Name == name {
			return t.targets[i : i+1]
		}
	}
	return nil
}
