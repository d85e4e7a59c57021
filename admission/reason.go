package admission

// Reason is why a gate refused a request, in lower case with underscores, as in
// metrics and logs.
type Reason string

// The reasons. Those from ReasonFull to ReasonGone are a Shedder's, the others a
// Quota's.
const (
	// ReasonNone: it was not refused.
	ReasonNone Reason = ""

	// ReasonFull: there was no place, and none in the queue.
	ReasonFull Reason = "full"

	// ReasonDeadline: it would not be served, or was not, within its deadline.
	ReasonDeadline Reason = "deadline"

	// ReasonDisplaced: it was in the queue, and made room for another that matters
	// more or is newer.
	ReasonDisplaced Reason = "displaced"

	// ReasonWaited: no place came for as long as it may wait.
	ReasonWaited Reason = "waited"

	// ReasonGone: its client went away.
	ReasonGone Reason = "gone"

	// ReasonQuota: its key has used up its quota.
	ReasonQuota Reason = "quota"

	// ReasonTooMuch: it costs more than the quota ever holds.
	ReasonTooMuch Reason = "too_much"

	// ReasonKey: Quota.Key has failed.
	ReasonKey Reason = "key"

	// ReasonStore: the store did not answer, and the Quota is Strict.
	ReasonStore Reason = "store"

	// ReasonMisconfigured: Validate says what is wrong.
	ReasonMisconfigured Reason = "misconfigured"
)
