package durable

import "time"

// Hold is a gateway that is held: nothing is sent to it, and its intents keep their attempts and
// times. Holds of a person, of the provider and of an Engine do not affect each other.
type Hold struct {
	// Gateway is the name of the gateway.
	Gateway string

	// Scope is the only scope that is held. "" means all. Only a provider's hold has one.
	Scope string

	// Provider means that the provider asked to wait. Status queries are still sent.
	Provider bool

	// Since is the time at which the hold began.
	Since time.Time

	// Until is the time at which the hold ends. Zero means that it lasts until it is released.
	Until time.Time

	// By and Note are the person and the reason. By is empty if an Engine holds the gateway by
	// itself (see Engine.Holds), and if the provider asked to wait.
	By, Note string

	// ErrorType and Error are the error.type and the text of the attempt that led to the hold, and
	// ProbeAt is the earliest time of the next probe. An Engine sets them for its own holds, which
	// end with the first answer, and ErrorType for the provider's. Stores do not keep them.
	ErrorType, Error string
	ProbeAt          time.Time

	// ReleasedBy is the person that ends the hold. If it is set, Store.SetHold ends the hold.
	ReleasedBy string
}

// Holder returns "person", "provider" or "engine".
func (h *Hold) Holder() string {
	switch {
	case h.Provider:
		return "provider"
	case h.By == "" && h.ReleasedBy == "":
		return "engine"
	default:
		return "person"
	}
}

// Validate returns an ErrInvalid that says what is wrong with the arguments of SetHold.
func (h *Hold) Validate() error {
	switch {
	case h.Gateway == "":
		return invalidf("Hold.Gateway is empty")
	case h.Provider && (h.Until.IsZero() || h.By != "" || h.ReleasedBy != ""):
		return invalidf("Hold of a provider: Until is %v and By %q, want a time and no person", h.Until, h.By+h.ReleasedBy)
	case !h.Provider && h.Scope != "":
		return invalidf("Hold.Scope is %q, want none: only a provider's hold has one", h.Scope)
	case !h.Provider && h.By == "" && h.ReleasedBy == "":
		return invalidf("Hold.By is empty")
	}
	for _, each := range [...][2]string{{"Gateway", h.Gateway}, {"Scope", h.Scope}, {"By", h.By}, {"Note", h.Note}, {"ReleasedBy", h.ReleasedBy}} {
		if err := validateName("Hold."+each[0], each[1]); err != nil {
			return err
		}
	}
	return validTime(h.Until)
}

// WaitUntil returns the end of a provider's hold that is stored at now. If Since is set, both times
// are by the clock of an earlier claim, and only the time between them counts.
func (h *Hold) WaitUntil(now time.Time) time.Time {
	if h.Since.IsZero() {
		return h.Until
	}
	return now.Add(h.Until.Sub(h.Since))
}

// waits reports whether a provider's hold is in effect. One that begins in the future was stored
// before the clock was set back. How long it lasts is unknown, and the next send shows it.
func (h *Hold) waits(now time.Time) bool { return now.Before(h.Until) && !now.Before(h.Since) }

// queue is what a provider's hold is about: see Claim.Waiting.
func (h *Hold) queue() QueueKey { return QueueKey{Gateway: h.Gateway, Scope: h.Scope} }
