package admission

// Reason is why a gate refused a request, in lower case with underscores, as in
// metrics and logs.
type Reason string

// The reasons. Those from ReasonQueueFull to ReasonCanceled are a Shedder's, the others a
// Quota's.
const (
	// ReasonNone: it was not refused.
	ReasonNone Reason = ""

	// ReasonQueueFull: there was no place, and none in the queue.
	ReasonQueueFull Reason = "queue_full"

	// ReasonDeadline: it would not be served, or was not, within its deadline.
	ReasonDeadline Reason = "deadline"

	// ReasonEvicted: it was in the queue, and made room for another that matters
	// more or is newer.
	ReasonEvicted Reason = "evicted"

	// ReasonQueueTimeout: no place came for as long as it may wait.
	ReasonQueueTimeout Reason = "queue_timeout"

	// ReasonCanceled: its client went away.
	ReasonCanceled Reason = "canceled"

	// ReasonQuotaExceeded: its key has used up its quota.
	ReasonQuotaExceeded Reason = "quota_exceeded"

	// ReasonExceedsBurst: it costs more than the quota ever holds.
	ReasonExceedsBurst Reason = "exceeds_burst"

	// ReasonKeyError: Quota.Key has failed.
	ReasonKeyError Reason = "key_error"

	// ReasonStoreUnavailable: the store did not answer, and the Quota has FailClosed.
	ReasonStoreUnavailable Reason = "store_unavailable"

	// ReasonMisconfigured: Validate says what is wrong.
	ReasonMisconfigured Reason = "misconfigured"
)
