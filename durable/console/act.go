package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
)

// act does what a form requests, and redirects to the page that shows the result.
func (h *Handler) act(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); !large {
			err = errForm
		}
		h.explain(w, r, err)
		return
	}
	by := ""
	if h.By != nil {
		by = h.By(r)
	}
	if by == "" {
		h.fail(w, http.StatusForbidden, "You may not change anything here.")
		return
	}
	form, back := r.PostForm, url.Values{}
	var err error
	switch form.Get("action") {
	case "redrive":
		back, err = h.redrive(r, by)
	case "redrive-one":
		back, err = h.redriveOne(r, by)
	case "resolve":
		back, err = h.resolve(r, by)
	case "erase":
		if form.Get("sure") == "" {
			err = fmt.Errorf("%w: confirm that the texts are removed", durable.ErrInvalid)
			break
		}
		back = linkTo(idOf(form))
		back.Set("did", "erased")
		err = h.Engine.Erase(r.Context(), idOf(form), by)
	case "hold":
		back.Set("did", "held")
		err = h.hold(r, by)
	case "release":
		back.Set("did", "released")
		if err = h.Engine.Release(r.Context(), form.Get("gateway"), by); errors.Is(err, durable.ErrNotFound) {
			err = errNotHeld
		}
	case "cancel":
		back.Set("did", "canceled")
		back.Set("job", form.Get("job"))
		err = h.Engine.CancelJob(r.Context(), durable.JobID(form.Get("job")), by)
		if errors.Is(err, durable.ErrNotFound) || errors.Is(err, durable.ErrInvalidState) {
			err = errNoJob
		}
	default:
		err = errForm
	}
	if err != nil {
		h.explain(w, r, err)
		return
	}
	w.Header().Set("Location", "?"+back.Encode()) // relative: the path may be another one outside
	w.WriteHeader(http.StatusSeeOther)
}

// redrive starts a job that redrives the dead letters that the filter selects.
func (h *Handler) redrive(r *http.Request, by string) (url.Values, error) {
	filter, err := filterOf(r.PostForm)
	if err != nil {
		return nil, err
	}
	how := durable.Redrive{By: by, Note: r.PostForm.Get("note")}
	if rate := r.PostForm.Get("per_second"); rate != "" {
		const oneAnHour = 1.0 / 3600 // a lower rate is a mistake: the job would seem to do nothing
		if how.PerSecond, err = strconv.ParseFloat(rate, 64); err != nil || !(how.PerSecond >= oneAnHour) {
			return nil, fmt.Errorf("%w: rate is %q, want a number per second, at least one an hour (0.0003)", durable.ErrInvalid, rate)
		}
	}
	if how.SeenAt, err = time.Parse(time.RFC3339, r.PostForm.Get("seen_at")); err != nil {
		return nil, errForm
	}
	id, err := h.Engine.Redrive(r.Context(), filter, how)
	back := queryOf(&filter)
	back.Set("did", "job")
	back.Set("job", string(id))
	return back, err
}

// redriveOne redrives the intent of the form's page.
func (h *Handler) redriveOne(r *http.Request, by string) (url.Values, error) {
	seen, err := seenIn(r.PostForm)
	if err != nil {
		return nil, err
	}
	back := linkTo(seen.ID)
	back.Set("did", "redriven")
	return back, h.Engine.RedriveOne(r.Context(), seen, durable.Redrive{By: by, Note: r.PostForm.Get("note")})
}

// resolve notes a person's decision.
func (h *Handler) resolve(r *http.Request, by string) (url.Values, error) {
	outcome := durable.Outcome{Reference: r.PostForm.Get("reference"), Code: r.PostForm.Get("code")}
	switch r.PostForm.Get("class") {
	case "succeeded":
		outcome.Class = durable.ClassSucceeded
	case "declined":
		outcome.Class = durable.ClassDeclined
	default:
		return nil, fmt.Errorf("%w: choose whether the work was done", durable.ErrInvalid)
	}
	seen, err := seenIn(r.PostForm)
	if err != nil {
		return nil, err
	}
	back := linkTo(seen.ID)
	back.Set("did", "resolved")
	return back, h.Engine.Resolve(r.Context(), seen, outcome, by)
}

// hold holds a gateway for some hours, or until it is released.
func (h *Handler) hold(r *http.Request, by string) error {
	var until time.Time
	if text := r.PostForm.Get("hours"); text != "" {
		const year = 366 * 24
		hours, err := strconv.ParseFloat(text, 64)
		if err != nil || !(hours > 0 && hours <= year) {
			return fmt.Errorf("%w: duration is %q hours, want a positive number up to %d", durable.ErrInvalid, text, year)
		}
		until = time.Now().Add(time.Duration(hours * float64(time.Hour)))
	}
	return h.Engine.Hold(r.Context(), r.PostForm.Get("gateway"), until, by, r.PostForm.Get("note"))
}

// seenIn returns the state of the intent that the form's page showed (D16).
func seenIn(form url.Values) (durable.Seen, error) {
	letter, err := strconv.Atoi(form.Get("letter"))
	generation, invalid := strconv.ParseInt(form.Get("generation"), 10, 64)
	if cmp.Or(err, invalid) != nil {
		return durable.Seen{}, errForm
	}
	return durable.Seen{ID: idOf(form), Letter: letter, Generation: generation}, nil
}
