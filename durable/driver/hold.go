package driver

import "time"

// Hold is a gateway that is held: nothing is sent to it, and its intents keep their
// attempts and times.
type Hold struct {
	// Gateway is the name of the gateway.
	Gateway string

	// Since is the time at which the hold began.
	Since time.Time

	// Until is the time at which the hold ends. Zero means that it lasts until it is released.
	Until time.Time

	// By and Note are the person and the reason. By is empty if an Engine holds the
	// gateway by itself: see Engine.Holds.
	By, Note string

	// ErrorType and Error are the error.type and the text of the last attempt without an answer, and
	// ProbeAt is the earliest time of the next probe. An Engine sets them for its own holds, which
	// end with the first answer. Stores do not keep them.
	ErrorType, Error string
	ProbeAt          time.Time

	// ReleasedBy is the person that ends the hold. If it is set, Store.SetHold ends the hold.
	ReleasedBy string
}

// Validate returns an ErrInvalid that says what is wrong with the arguments of SetHold.
func (h *Hold) Validate() error {
	switch {
	case h.Gateway == "":
		return Invalidf("Hold.Gateway is empty")
	case h.By == "" && h.ReleasedBy == "":
		return Invalidf("Hold.By is empty")
	}
	for _, each := range [...][2]string{{"Gateway", h.Gateway}, {"By", h.By}, {"Note", h.Note}, {"ReleasedBy", h.ReleasedBy}} {
		if err := ValidateName("Hold."+each[0], each[1]); err != nil {
			return err
		}
	}
	return validTime(h.Until)
}
