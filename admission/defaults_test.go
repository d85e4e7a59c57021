package admission

import (
	"testing"

	"github.com/resilienthttp/resilienthttp/internal/doctable"
)

func TestQuota_defaultsInDocs(t *testing.T) {
	var zero Quota
	doctable.Check(t, "../docs/admission.md", "quota", []doctable.Row{
		{Field: "Limit", Default: "none", Unit: "requests of a key in each `Window`", Range: "from 1; required"},
		{Field: "Window", Default: zero.asRule().Window, Unit: "duration", Range: "positive"},
		{Field: "Burst", Default: "`Limit`", Unit: "requests at once", Range: "from 1; `Sliding` ignores it"},
		{Field: "Sliding", Default: zero.Sliding, Unit: "at most `Limit` requests in any `Window`", Range: ""},
		{Field: "Key", Default: "client address, IPv6 by /64", Unit: "key of the request", Range: "behind a proxy, set it to the account"},
		{Field: "Cost", Default: 1, Unit: "units of a request", Range: "0 or less is free"},
		{Field: "Store", Default: "memory, 65,536 keys", Unit: "a shared store makes one quota for all processes", Range: ""},
		{Field: "Timeout", Default: defaultStoreTimeout, Unit: "wait for the store", Range: "positive"},
		{Field: "FailClosed", Default: zero.FailClosed, Unit: "503 if the store fails; otherwise a bucket of the process decides", Range: ""},
		{Field: "Legacy", Default: zero.Legacy, Unit: "sends `X-RateLimit-*` too", Range: ""},
	})
}

func TestShedder_defaultsInDocs(t *testing.T) {
	initial, least, most := new(Shedder).bounds()
	doctable.Check(t, "../docs/admission.md", "shedder", []doctable.Row{
		{Field: "Initial", Default: initial, Unit: "first limit of requests in flight", Range: "`Min` to `Max`"},
		{Field: "Min", Default: least, Unit: "lowest limit", Range: "from 1"},
		{Field: "Max", Default: most, Unit: "highest limit", Range: "from `Min`"},
		{Field: "Tolerance", Default: defaultTolerance, Unit: "multiple of the baseline latency that is too slow", Range: "above 1; negative: fixed limit"},
		{Field: "Queue", Default: "twice the limit, or as many as get a slot in time", Unit: "requests that may wait", Range: "negative: none"},
		{Field: "MaxWait", Default: doctable.Format(defaultMaxWait) + ", or twice the latency if longer", Unit: "wait for a slot", Range: "negative: none"},
		{Field: "Priority", Default: "default for all", Unit: "priority of the request", Range: "batch, default, critical"},
		{Field: "Key", Default: "none", Unit: "no key gets more than an equal share while others wait", Range: ""},
		{Field: "NoRetryHint", Default: new(Shedder).NoRetryHint, Unit: "omits `X-Should-Retry: false` in a lasting overload", Range: ""},
	})
}
