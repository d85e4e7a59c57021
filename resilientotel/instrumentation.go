package resilientotel

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/endpoints"
)

// ScopeName is the name of the instrumentation scope in traces and metrics.
const ScopeName = "github.com/resilienthttp/resilienthttp/resilientotel"

const defaultMaxScopes = 100

// Instrumentation records traces and metrics of Transports and server-side parts. The zero
// value uses the global providers. One Instrumentation is enough for a program.
//
// If several wrapped Transports know the same scope, the numbers of attempts and waiting
// calls are added up. Of breakers, retry budgets and quotas the worst is exported.
//
// An Instrumentation is safe for concurrent use. Its fields are read at its first use and
// must not be changed after it. It must not be copied.
type Instrumentation struct {
	// TracerProvider creates the spans. nil means the global provider.
	TracerProvider trace.TracerProvider

	// MeterProvider creates the metrics. nil means the global provider.
	MeterProvider metric.MeterProvider

	// Propagator writes the span of an attempt into its headers. nil means the Options', or the
	// global propagator.
	Propagator propagation.TextMapPropagator

	// Options are options of otelhttp for the attempts, such as filters, a formatter of span
	// names or attributes. They are applied first, so the TracerProvider, MeterProvider and
	// Propagator above replace those in Options. Options may export what this package does
	// not, such as paths. They are not used for a Base that is an otelhttp.Transport.
	Options []otelhttp.Option

	// MaxScopes is the maximum number of hosts, and of scopes, with their own value in metrics.
	// All later ones have the value "_OTHER". Zero means 100. A negative number means no limit.
	MaxScopes int

	once sync.Once
	*instruments

	// The SDK calls collect under a lock that RegisterCallback also takes. So registering is
	// not protected by mu, which collect takes.
	registering  sync.Mutex
	registration metric.Registration // nil: not registered

	mu       sync.Mutex
	wrapped  map[*resilienthttp.Transport]*client
	engines  []*durable.Engine
	shedders []namedShedder
}

// instruments are the providers and instruments of an Instrumentation.
type instruments struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
	options    []otelhttp.Option
	tracer     trace.Tracer

	scopes   names
	attempts attemptAttributes
	starts   table[callKind, callStart]

	calls     *callMetrics
	states    *stateMetrics
	server    *serverMetrics
	admission *admissionMetrics

	observables []metric.Observable // of the last three
}

// start reads the fields.
func (i *Instrumentation) start() {
	i.once.Do(func() {
		n := &instruments{
			tracers: cmp.Or(i.TracerProvider, otel.GetTracerProvider()), meters: cmp.Or(i.MeterProvider, otel.GetMeterProvider()),
			propagator: i.Propagator, options: i.Options,
		}
		limit := cmp.Or(i.MaxScopes, defaultMaxScopes)
		n.scopes.limit, n.attempts.maxServers = limit, limit
		n.tracer = n.tracers.Tracer(ScopeName)
		m := &meter{Meter: n.meters.Meter(ScopeName)}
		n.calls, n.states = newCallMetrics(m, limit), newStateMetrics(m)
		n.server, n.admission = newServerMetrics(m), newAdmissionMetrics(m)
		n.observables = m.observables
		i.instruments = n
	})
}

// Wrap instruments a Transport and returns the RoundTripper to use instead of it, as the
// Transport of an http.Client. It must be called before the first use of t. It sets t.Base to
// otelhttp around the Base that t had, and adds hooks to t.Trace, which run before those that
// t had. A Base that is an otelhttp.Transport is kept, and its spans have otelhttp's own
// attributes only. A nil t is a new Transport. The same t can be wrapped more than once.
//
// The RoundTripper obeys the rules of the Transport and forwards CloseIdleConnections.
func (i *Instrumentation) Wrap(t *resilienthttp.Transport) http.RoundTripper {
	i.start()
	c := i.wrap(cmp.Or(t, &resilienthttp.Transport{}))
	i.register()
	return c
}

// WrapEndpoints instruments a list of endpoints and returns the RoundTripper to use instead of it. It is
// [Instrumentation.Wrap] for list.Transport, and the span of a call is around the list. A nil
// list.Transport is set to a new one; a nil list has no endpoints. It must be called before the first use
// of the list.
func (i *Instrumentation) WrapEndpoints(list *endpoints.Transport) http.RoundTripper {
	i.start()
	list = cmp.Or(list, &endpoints.Transport{})
	list.Transport = cmp.Or(list.Transport, &resilienthttp.Transport{})
	c := i.wrap(list.Transport)
	i.register()
	return &listClient{list, c}
}

func (i *Instrumentation) wrap(t *resilienthttp.Transport) *client {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.wrapped[t]
	if c == nil {
		c = newClient(i.instruments, t)
		if i.wrapped == nil {
			i.wrapped = map[*resilienthttp.Transport]*client{}
		}
		i.wrapped[t] = c
	}
	return c
}

// Unregister ends the export of gauges: the state of wrapped Transports, watched Engines and
// watched Shedders, which may then be garbage collected. Spans and all other metrics continue.
// A later Wrap or Watch exports the gauges of what it adds. What was wrapped or watched before
// must not be wrapped or watched again.
func (i *Instrumentation) Unregister() {
	i.registering.Lock()
	defer i.registering.Unlock()
	if i.registration != nil {
		if err := i.registration.Unregister(); err != nil {
			otel.Handle(err)
		}
		i.registration = nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.wrapped, i.engines, i.shedders = nil, nil, nil
}

// register registers collect, if it is not registered.
func (i *Instrumentation) register() {
	i.registering.Lock()
	defer i.registering.Unlock()
	if i.registration != nil {
		return
	}
	registration, err := i.meters.Meter(ScopeName).RegisterCallback(i.collect, i.observables...)
	if err != nil {
		otel.Handle(err)
		return
	}
	i.registration = registration
}

// collect observes all gauges. The SDK calls it at each collection.
func (i *Instrumentation) collect(ctx context.Context, o metric.Observer) error {
	i.mu.Lock()
	transports := slices.Collect(maps.Keys(i.wrapped))
	engines, shedders := slices.Clone(i.engines), slices.Clone(i.shedders)
	i.mu.Unlock()
	i.states.observe(o, transports, &i.scopes)
	i.admission.observe(o, shedders)
	return i.server.observe(ctx, o, engines)
}
