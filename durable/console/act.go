package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
)

// act does what a form asks for, and leads back to where one sees what came of it.
func (h *Handler) act(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); !large {
			err = errForm
		}
		h.explain(w, err)
		return
	}
	by := ""
	if h.By != nil {
		by = h.By(r)
	}
	if by == "" {
		h.fail(w, http.StatusForbidden, "You may not act here.")
		return
	}
	var back url.Values
	var err error
	switch r.PostForm.Get("action") {
	case "redrive":
		back, err = h.redrive(r, by)
	case "resolve":
		back, err = h.resolve(r, by)
	default:
		err = errForm
	}
	if err != nil {
		h.explain(w, err)
		return
	}
	w.Header().Set("Location", "?"+back.Encode()) // relative: the path may be another one outside
	w.WriteHeader(http.StatusSeeOther)
}

// redrive brings back one intent, or all that a filter chooses.
func (h *Handler) redrive(r *http.Request, by string) (url.Values, error) {
	how := durable.Redrive{By: by, Note: r.PostForm.Get("note")}
	if r.PostForm.Get("one") != "" { // no filter: an empty part of an ID would choose all
		seen, err := seenIn(r.PostForm)
		if err != nil {
			return nil, err
		}
		back := linkTo(seen.ID)
		back.Set("redriven", "1")
		return back, h.Engine.RedriveOne(r.Context(), seen, how)
	}
	filter, err := filterOf(r.PostForm)
	if err != nil {
		return nil, err
	}
	if rate := r.PostForm.Get("per_second"); rate != "" {
		if how.PerSecond, err = strconv.ParseFloat(rate, 64); err != nil || !(how.PerSecond > 0) {
			return nil, fmt.Errorf("%w: %q a second", durable.ErrInvalid, rate)
		}
	}
	if how.SeenAt, err = time.Parse(time.RFC3339, r.PostForm.Get("seen_at")); err != nil {
		return nil, errForm
	}
	id, err := h.Engine.Redrive(r.Context(), filter, how)
	if err != nil {
		return nil, err
	}
	back := queryOf(&filter)
	back.Set("job", string(id))
	return back, nil
}

// resolve takes a person's word.
func (h *Handler) resolve(r *http.Request, by string) (url.Values, error) {
	outcome := durable.Outcome{Reference: r.PostForm.Get("reference"), Code: r.PostForm.Get("code")}
	switch r.PostForm.Get("class") {
	case "succeeded":
		outcome.Class = durable.ClassSucceeded
	case "declined":
		outcome.Class = durable.ClassDeclined
	default:
		return nil, fmt.Errorf("%w: say whether it was done", durable.ErrInvalid)
	}
	seen, err := seenIn(r.PostForm)
	if err != nil {
		return nil, err
	}
	if err := h.Engine.Resolve(r.Context(), seen, outcome, by); err != nil {
		return nil, err
	}
	back := linkTo(seen.ID)
	back.Set("resolved", "1")
	return back, nil
}

// seenIn returns the state of the intent that the form's page showed.
func seenIn(form url.Values) (durable.Seen, error) {
	letter, err := strconv.Atoi(form.Get("letter"))
	if err != nil {
		return durable.Seen{}, errForm
	}
	generation, err := strconv.ParseInt(form.Get("generation"), 10, 64)
	if err != nil {
		return durable.Seen{}, errForm
	}
	return durable.Seen{ID: idOf(form), Letter: letter, Generation: generation}, nil
}
