package resilienthttp

import (
	"context"
	"slices"
)

// options is everything that a context can say about the calls made with it,
// in one value, so that a call looks once.
type options struct {
	policy *Policy
	key    string
	traces []*Trace
	single bool // another layer owns retries
	owned  bool // and the next tier is to be told so

	priority Priority
}

type optionsKey struct{}

// noOptions and nestedOptions are never written to. A Transport inside a
// Transport sees nestedOptions: the policy, key and traces in the context are
// the outer call's, which has the retries too.
var (
	noOptions     = &options{}                          //nolint:gochecknoglobals // never written to
	nestedOwned   = &options{single: true, owned: true} //nolint:gochecknoglobals // never written to
	nestedOptions = &options{single: true}              //nolint:gochecknoglobals // never written to
)

func optionsOf(ctx context.Context) *options {
	if o, ok := ctx.Value(optionsKey{}).(*options); ok {
		return o
	}
	return noOptions
}

func withOptions(ctx context.Context, change func(*options)) context.Context {
	o := *optionsOf(ctx)
	o.traces = slices.Clip(o.traces)
	change(&o)
	return context.WithValue(ctx, optionsKey{}, &o)
}
