package lab

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os/exec"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/chart"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

//go:embed page.html style.css script.js
var files embed.FS

// handler serves the page, and makes runs.
type handler struct {
	runner *runner
	page   *template.Template
}

// maxForm is the maximum size of a form.
const maxForm = 1 << 20

// NewHandler returns the handler of the page. command returns the child process of a run, which
// must call [Child] and must end with the context. Requests for other hosts than the loopback, and
// runs that another site starts, are rejected.
func NewHandler(command func(context.Context) *exec.Cmd) http.Handler {
	return newHandler(newRunner(command))
}

func newHandler(r *runner) http.Handler {
	h := &handler{r, template.Must(template.New("page").Funcs(template.FuncMap{
		"percent": percent, "seconds": seconds, "grouped": grouped, "color": chart.Color,
	}).ParseFS(files, "page.html"))}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.form)
	mux.HandleFunc("POST /run", h.run)
	mux.Handle("GET /style.css", http.FileServerFS(files))
	mux.Handle("GET /script.js", http.FileServerFS(files))
	return onLoopback(http.NewCrossOriginProtection().Handler(mux))
}

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// onLoopback rejects requests with another Host, which a name that an attacker has pointed at the
// loopback address would send.
func onLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) {
			http.Error(w, "lab: the Host is not a loopback address", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether a host, with or without a port, is localhost or a loopback address.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// formView is the page with the values of its URL.
type formView struct {
	APIs, Presets []Preset
	Groups        []fieldGroup
	Peers         []peers.Peer
	Values        map[string]string // by field
	Checked       map[string]bool   // by library
	Errors        FormError
}

func (h *handler) form(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	view := formView{
		APIs: APIs(), Presets: Presets(), Groups: fieldGroups(), Peers: peers.All(),
		Values: map[string]string{}, Checked: map[string]bool{peers.Ours: !values.Has(peersField)},
	}
	_, view.Errors = Parse(values)
	for _, g := range view.Groups {
		for _, f := range g.Fields {
			view.Values[f.Name] = f.Initial
			if values.Has(f.Name) {
				view.Values[f.Name] = values.Get(f.Name)
			}
		}
	}
	for _, name := range values[peersField] {
		view.Checked[name] = true
	}
	h.render(w, "form", view)
}

func (h *handler) render(w http.ResponseWriter, name string, view any) {
	var page bytes.Buffer
	if err := h.page.ExecuteTemplate(&page, name, view); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page.Bytes())
}

// event is a line of the response to a run.
type event struct {
	Errors   FormError `json:"errors,omitempty"`   // of the form
	URL      string    `json:"url,omitempty"`      // of the page with this experiment
	Progress float64   `json:"progress,omitempty"` // the ratio that is done
	Failed   string    `json:"failed,omitempty"`   // the run has no result
	Result   string    `json:"result,omitempty"`   // HTML
}

// run makes a run and streams its events. It ends with the request: a browser that leaves the page
// ends the child process.
func (h *handler) run(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "lab: "+err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	encoder, flusher := json.NewEncoder(w), http.NewResponseController(w)
	send := func(e event) {
		_ = encoder.Encode(e) //nolint:errchkjson // a finite number; if the write fails, the request's context ends
		_ = flusher.Flush()
	}
	s, errs := Parse(r.PostForm)
	if errs != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		send(event{Errors: errs})
		return
	}
	if err := h.runner.acquire(r.Context()); err != nil {
		w.WriteHeader(http.StatusConflict)
		send(event{Failed: err.Error()})
		return
	}
	defer h.runner.release()
	send(event{URL: (&url.URL{Path: "/", RawQuery: s.Query()}).String()})
	report, err := h.runner.run(r.Context(), s, func(done float64) { send(event{Progress: done}) })
	if err != nil {
		send(event{Failed: err.Error()})
		return
	}
	result, err := h.result(s, report)
	if err != nil {
		send(event{Failed: err.Error()})
		return
	}
	send(event{Result: result})
}

// resultView is the result of a run.
type resultView struct {
	*Report

	Runs  []*Run
	Plots []plot
	Seed  int
}

func (h *handler) result(s *Spec, report *Report) (string, error) {
	plots, err := report.plots()
	if err != nil {
		return "", err
	}
	var page bytes.Buffer
	err = h.page.ExecuteTemplate(&page, "result", resultView{report, report.drawn(), plots, s.seed})
	return page.String(), err
}
