// Package console is a web page for operators of package durable. It lists dead letters and
// intents in any state, with each attempt. It has forms to redrive, resolve and erase intents,
// and to hold gateways.
//
//	http.Handle("/durable", authorised(&console.Handler{
//		Engine: engine, By: func(r *http.Request) string { return userOf(r).Name },
//	}))
//
// The first page waits half a second for its numbers. With a million intents they are on a page of their own, and a
// filter may take some seconds.
//
// The pages have no script and load nothing. The caller must authorise readers in front of
// the Handler, and writers there or in By.
package console

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/resilienthttp/resilienthttp/durable"
)

// Handler serves the console, all of it at one path. It is safe for concurrent use, and must
// not be modified or copied after its first use.
type Handler struct {
	// Engine has the Store, and the Gateways that can be held. It must be set.
	Engine *durable.Engine

	// By returns the name of the person that sends a form. The name is stored with the action.
	// "" means that the person may not act. A nil By means that the console is read-only.
	By func(*http.Request) string

	// Describe returns the part of an intent's payload that may be shown, as text. nil:
	// payloads are not shown.
	Describe func(*durable.Record) string

	// Title is the title of the pages. "" means "durable".
	Title string

	once    sync.Once
	handler http.Handler
}

var _ http.Handler = (*Handler)(nil)

// ServeHTTP implements http.Handler. http.CrossOriginProtection rejects a POST from another
// origin.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.once.Do(func() { h.handler = http.NewCrossOriginProtection().Handler(http.HandlerFunc(h.serve)) })
	header := w.Header()
	header.Set("Content-Security-Policy", securityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin") // "no-referrer" would remove the Origin of a form's POST
	header.Set("Cache-Control", "no-store")
	h.handler.ServeHTTP(w, r)
}

// securityPolicy allows the page's own style, its own forms, and nothing else.
var securityPolicy = func() string { //nolint:gochecknoglobals // never written to
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

// maxForm is the maximum size of a POST's body.
const maxForm = 64 << 10

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	if h.Engine == nil {
		h.fail(w, http.StatusInternalServerError, "The console has no Engine.")
		return
	}
	if err := h.Engine.Validate(); err != nil {
		h.explain(w, r, err)
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		h.read(w, r)
	case http.MethodPost:
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		h.act(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		h.fail(w, http.StatusMethodNotAllowed, "The console accepts GET, HEAD and POST.")
	}
}

func (h *Handler) read(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	var p *page
	var err error
	switch query.Get("view") {
	case "", "intents":
		p, err = h.list(r, query)
	case "intent":
		p, err = h.intent(r, query)
	case "redrive":
		p, err = h.confirm(r, query)
	case "counts":
		p, err = h.counts(r)
	default:
		err = errForm
	}
	if err != nil {
		h.explain(w, r, err)
		return
	}
	h.render(w, http.StatusOK, p)
}

// Errors of the console itself.
var (
	errForm    = errors.New("no page of the console makes this request")
	errNotHeld = errors.New("the gateway is not held")
	errNoJob   = errors.New("the job has ended or is gone")
)

// explain renders an error.
func (h *Handler) explain(w http.ResponseWriter, r *http.Request, err error) {
	status, text := http.StatusInternalServerError, "The store failed. Load the page again."
	switch _, large := errors.AsType[*http.MaxBytesError](err); {
	case large:
		status, text = http.StatusRequestEntityTooLarge, "The form is too large."
	case errors.Is(err, errForm):
		status, text = http.StatusBadRequest, "The console has no such page or form."
	case errors.Is(err, durable.ErrInvalid):
		status, text = http.StatusBadRequest, "Invalid: "+strings.TrimPrefix(err.Error(), durable.ErrInvalid.Error()+": ")
	case errors.Is(err, durable.ErrNotFound):
		status, text = http.StatusNotFound, "There is no such intent."
	case errors.Is(err, durable.ErrStale):
		status, text = http.StatusConflict, "The intent has changed since this page was loaded. Look again."
	case errors.Is(err, durable.ErrInvalidState):
		status, text = http.StatusConflict, "The intent's state does not permit this. Look again."
	case errors.Is(err, errNotHeld):
		status, text = http.StatusConflict, "This gateway is not held."
	case errors.Is(err, errNoJob):
		status, text = http.StatusConflict, "This job has ended or is gone."
	case r.Method == http.MethodPost: // the error's text may hold anything
		text = "The store failed. The change may have been made or not. Repeating it is safe."
	}
	p := &page{Problem: text}
	if r.PostForm.Has("letter") {
		p.Back = "?" + linkTo(idOf(r.PostForm)).Encode()
	}
	h.render(w, status, p)
}

func (h *Handler) fail(w http.ResponseWriter, status int, text string) {
	h.render(w, status, &page{Problem: text})
}

func (h *Handler) render(w http.ResponseWriter, status int, p *page) {
	p.Title, p.Style, p.CanWrite = cmp.Or(h.Title, "durable"), pageStyle, h.By != nil
	var body bytes.Buffer
	if err := htmlPage.Execute(&body, p); err != nil {
		http.Error(w, "the page cannot be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = body.WriteTo(w)
}
