package admission

// Reason is why a Shedder or a Quota rejected a request, in lower case with underscores, as in
// metrics and logs.
type Reason string

// The reasons of a Shedder are those from ReasonQueueFull to ReasonCanceled, those of a Quota
// the others. A Shedder with a Key has ReasonKeyError too.
const (
	// ReasonNone means that the request was not rejected.
	ReasonNone Reason = ""

	// ReasonQueueFull means that no slot was free and the queue was full.
	ReasonQueueFull Reason = "queue_full"

	// ReasonDeadline means that the request would not be served before its deadline, or that
	// its deadline passed in the queue.
	ReasonDeadline Reason = "deadline"

	// ReasonEvicted means that a newer or more important request evicted this one from the
	// queue.
	ReasonEvicted Reason = "evicted"

	// ReasonQueueTimeout means that no slot became free within MaxWait.
	ReasonQueueTimeout Reason = "queue_timeout"

	// ReasonCanceled means that the client canceled the request in the queue.
	ReasonCanceled Reason = "canceled"

	// ReasonQuotaExceeded means that the quota of the key is used up.
	ReasonQuotaExceeded Reason = "quota_exceeded"

	// ReasonExceedsBurst means that the request costs more than the quota ever holds.
	ReasonExceedsBurst Reason = "exceeds_burst"

	// ReasonKeyError means that Key returned an error.
	ReasonKeyError Reason = "key_error"

	// ReasonStoreUnavailable means that the store was late, failed, or was not called during
	// the fallback, and that the Quota has FailClosed.
	ReasonStoreUnavailable Reason = "store_unavailable"

	// ReasonMisconfigured means that Validate returns an error.
	ReasonMisconfigured Reason = "misconfigured"
)
