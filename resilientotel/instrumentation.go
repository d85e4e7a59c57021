package resilientotel

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
)

// ScopeName is that of the instrumentation, in traces and metrics.
const ScopeName = "github.com/resilienthttp/resilienthttp/resilientotel"

const defaultMaxScopes = 100

// Instrumentation makes Transports and server parts tell OpenTelemetry what they do. The
// zero value tells the global providers. It is safe for concurrent use; its fields are
// read at its first use and must not change after it, and it must not be copied.
//
// One Instrumentation is enough for a program. What is known of one scope by several
// Transports that it wraps is told together: requests in flight are added up, of all else
// the worst is told.
type Instrumentation struct {
	// Tracers make the spans. nil: the global TracerProvider.
	TracerProvider trace.TracerProvider

	// Meters make the metrics. nil: the global MeterProvider.
	MeterProvider metric.MeterProvider

	// Propagator puts an attempt's span into its headers. nil: the global one.
	Propagator propagation.TextMapPropagator

	// MaxScopes is how many hosts, and how many scopes, have a name of their own in
	// metrics; all that come later are "_OTHER". 0 means 100; negative: no limit, for
	// programs that know whom they call.
	MaxScopes int

	once sync.Once
	*instruments

	// A collection asks under a lock of the SDK's, which to register takes, too: so that is
	// done under a lock of its own, and never under mu.
	registering sync.Mutex
	observes    metric.Registration // nil: nothing is observed

	mu       sync.Mutex
	wrapped  map[*resilienthttp.Transport]*client
	watched  []*durable.Engine
	shedders []shedder
}

// instruments are what an Instrumentation tells with.
type instruments struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
	tracer     trace.Tracer

	scopes  names
	servers servers

	calls  *callMetrics
	states *stateMetrics
	server *serverMetrics

	admission *admissionMetrics
}

// start reads the fields.
func (i *Instrumentation) start() {
	i.once.Do(func() {
		n := &instruments{tracers: i.TracerProvider, meters: i.MeterProvider, propagator: i.Propagator}
		if n.tracers == nil {
			n.tracers = otel.GetTracerProvider()
		}
		if n.meters == nil {
			n.meters = otel.GetMeterProvider()
		}
		most := cmp.Or(i.MaxScopes, defaultMaxScopes)
		n.scopes.most, n.servers.most = most, most
		n.tracer = n.tracers.Tracer(ScopeName)
		m := maker{n.meters.Meter(ScopeName)}
		n.admission = newAdmissionMetrics(m)
		n.calls, n.states, n.server = newCallMetrics(m, most), newStateMetrics(m), newServerMetrics(m)
		i.instruments = n
	})
}

// Wrap makes a Transport tell what it does, and returns the RoundTripper to use in its
// place: an http.Client's Transport. It must be called before t's first use, and changes
// two of its fields. Base is put into otelhttp, NewBase where it is nil; a Base that is an
// otelhttp.Transport stays as it is, and its spans lack what otelhttp does not know. Trace
// gets hooks more, which run before those that it has.
//
// What is wrapped twice is wrapped once. A nil t is a new Transport.
//
// The RoundTripper keeps to the contract of the Transport, and forwards
// CloseIdleConnections.
func (i *Instrumentation) Wrap(t *resilienthttp.Transport) http.RoundTripper {
	i.start()
	if t == nil {
		t = &resilienthttp.Transport{}
	}
	c := i.wrap(t)
	i.observe()
	return c
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

// Unregister ends what is observed whenever metrics are collected: the state of wrapped
// Transports, the figures of watched Engines and Shedders. These can be forgotten then.
// Their spans, and the metrics of what they do, go on. Another Wrap or Watch observes anew,
// for what was not wrapped or watched before: what was would be told of twice.
func (i *Instrumentation) Unregister() {
	i.registering.Lock()
	defer i.registering.Unlock()
	if i.observes != nil {
		if err := i.observes.Unregister(); err != nil {
			otel.Handle(err)
		}
		i.observes = nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.wrapped, i.watched, i.shedders = nil, nil, nil
}

// observe has the meter ask, if it does not yet.
func (i *Instrumentation) observe() {
	i.registering.Lock()
	defer i.registering.Unlock()
	if i.observes != nil {
		return
	}
	observes, err := i.meters.Meter(ScopeName).RegisterCallback(i.collect, i.observables()...)
	if err != nil {
		otel.Handle(err)
		return
	}
	i.observes = observes
}

func (i *Instrumentation) observables() []metric.Observable {
	return slices.Concat(i.states.all(), i.server.all(), []metric.Observable{i.admission.limit})
}

// collect is called whenever metrics are collected.
func (i *Instrumentation) collect(ctx context.Context, o metric.Observer) error {
	i.mu.Lock()
	transports := make([]*resilienthttp.Transport, 0, len(i.wrapped))
	for t := range i.wrapped {
		transports = append(transports, t)
	}
	engines, shedders := slices.Clone(i.watched), slices.Clone(i.shedders)
	i.mu.Unlock()
	i.states.observe(o, transports, &i.scopes)
	i.admission.observe(o, shedders)
	return i.server.observe(ctx, o, engines)
}
