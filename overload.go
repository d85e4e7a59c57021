package resilienthttp

import "net/http"

// overloaded reports whether the failure looks like that of a server with more
// work than it can do.
func (a *attempt) overloaded() bool {
	switch a.fate {
	case fateTimeout:
		return true
	case fateError:
		return timedOut(a.record.Err)
	case fateAnswered:
		return a.turnedAway() || a.record.Verdict == VerdictThrottled || a.record.Response.StatusCode == http.StatusGatewayTimeout
	default:
		return false
	}
}

// turnedAway reports whether the answer says that the server has no room.
func (a *attempt) turnedAway() bool {
	if a.fate != fateAnswered {
		return false
	}
	status := a.record.Response.StatusCode
	return status == http.StatusServiceUnavailable || status == statusOverloaded
}
